"""Transactions about carts.

A cart's row is locked before anything about it is decided, and before the gates of jobs and the
runs that follow from it.
"""
