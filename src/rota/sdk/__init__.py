"""The Python SDK: a typed client, sync and async, and the decorators that make functions into jobs.

Must not know anything of the server but its API, so that it can be upgraded apart.
What programs use of it is exported by `rota` itself.
"""
