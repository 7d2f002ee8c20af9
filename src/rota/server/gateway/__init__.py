"""The edge for people and programs: REST, live streams, sessions and tokens, errors as problems.

Turns requests into operations and their results into answers. Must not decide anything itself, nor
know the loops: it meets scheduler and dispatcher only through the store and the queue.
"""
