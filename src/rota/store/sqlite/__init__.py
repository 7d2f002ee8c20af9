"""The store in one SQLite file: nothing to install, one writer thread, every commit durable."""
