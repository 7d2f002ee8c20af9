"""Executors of the built-in job types."""
