"""Measures Rota beside its peers: `python -m bench [P2 P3 …] [--repeat N] [--quick] [--full]`.

`python -m bench compare OTHER_CHECKOUT` compares what runs cost two checkouts of Rota.

One module per workload, each with `run(plan)`. What runs inside a peer's own environment is in
`bench.peers` and must know nothing of Rota.
"""
