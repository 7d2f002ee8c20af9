"""The server: the roles of one process, which meet through the store, the queue and idle workers.

`gateway` answers people and programs, `scheduler` keeps time, `dispatcher` serves workers. None of
them imports another; none knows which adapter stands behind a port.
"""
