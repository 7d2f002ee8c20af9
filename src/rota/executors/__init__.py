"""The built-in job types."""
