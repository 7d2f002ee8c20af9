"""Connections between workers and servers: gRPC, or a Unix socket on one machine."""
