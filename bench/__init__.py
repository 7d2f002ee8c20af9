"""Measures Rota beside its peers: `python -m bench [P2 P3 …] [--repeat N] [--quick] [--full]`.

One module per workload, each with `run(plan)`. What runs inside a peer's own environment is in
`bench.peers` and must know nothing of Rota.
"""
