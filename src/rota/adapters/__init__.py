"""The ports, made real: stores, queues, blobs, executors, the clock.

The only place that imports a driver, and the place where its exceptions become ours. Must not know
what is being decided or who calls; only `runtime` and `testing` import it.
"""
