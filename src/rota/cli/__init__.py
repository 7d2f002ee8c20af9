"""The command `rota`, one module per noun.

Speaks to a server through the API, as any client does, and starts one through `runtime`. Must not
know the store or the domain: what only the CLI can do, no program can automate.
"""
