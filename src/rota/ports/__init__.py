"""Ports: Rota's needs of the world, as protocols in its own verbs: store, queue, blobs, link,
clock.

Each docstring states what an implementation guarantees. Must not know any implementation, driver
or wire format: only values of the domain pass through.
"""
