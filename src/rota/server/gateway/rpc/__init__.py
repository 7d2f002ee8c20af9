"""gRPC: `rota.v1.Scheduler` for programs, and the server that carries it and the workers' streams.

It calls the same operations as REST, behind the same tokens and roles. Needs the extra `cluster`.
"""
