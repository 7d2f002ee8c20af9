"""Adapters of the queue port. Lost, repeated or late messages only cost time."""
