"""Blob stores: where bytes too big for the store lie."""
