"""Adapters of the port `ports/provider`: identity providers that people log in with.

It knows HTTP and signatures, and nothing of sessions, roles or the store.
"""
