"""Ways for a worker to reach a server."""
