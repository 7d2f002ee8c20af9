"""The worker: its session with the server, the attempts it executes, and delivery of output.

Must not know the store, nor whether the server is in this process or across a network: the
`WorkerLink` port is all it sees of it.
"""
