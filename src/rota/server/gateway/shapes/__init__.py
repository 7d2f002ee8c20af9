"""The JSON of the API: one model a shape, made from values of the domain.

What is here is public and kept stable. Must not know routes, nor ask the store anything.
"""
