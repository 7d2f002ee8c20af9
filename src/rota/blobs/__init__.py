"""Blob stores: adapters for bytes that are too big for the store."""
