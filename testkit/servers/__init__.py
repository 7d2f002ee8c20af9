"""Real servers for tests, each on loopback with a folder of its own."""
