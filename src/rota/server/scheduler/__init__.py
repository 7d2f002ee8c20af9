"""The loops of time: fire what is due, release it at its instant, sweep up what was left behind.

Must not know who runs the work: it meets dispatcher and gateway only through the store and the
queue.
"""
