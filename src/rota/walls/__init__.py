"""Walls around what a job runs: sandboxes and containers, their networks and limits.

Whatever is told here is told to workers only: which wall a job has is decided before (`domain`),
and who starts processes is the guardian.
"""
