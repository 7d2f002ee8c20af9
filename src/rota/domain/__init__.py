"""Decisions of Rota: specs, due times, states and transitions, retries, gates, order of service.

Pure values and functions that are given `now`. Must not know where anything is stored, what time it
is, or that the world is asynchronous: no I/O, no clock, nothing of ours outside this package.
"""
