"""Shared keys: which ones runs take, who may have them now, and who waited for them."""
