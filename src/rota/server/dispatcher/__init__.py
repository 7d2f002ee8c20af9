"""The loops of work: claim ready runs for workers with room, renew leases, take back lost attempts.

Must not know when or why a run became ready, nor how a worker executes it: it meets scheduler and
gateway only through the store, the queue and the port of idle workers.
"""
