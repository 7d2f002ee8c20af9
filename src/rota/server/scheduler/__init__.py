"""Scheduling loops: fire due schedules, release runs at their instant, sweep up leftovers.

Must not know who runs the work: it meets dispatcher and gateway only through the store and the
queue.
"""
