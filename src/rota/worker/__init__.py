"""Where attempts run: the session with the server, the attempts in hand, their output on its way.

Must not know the store, nor whether the server is in this process or across a network: the
`WorkerLink` port is all it sees of it.
"""
