"""A store that keeps everything in memory, for thousands of universes. No SQL, no I/O."""
