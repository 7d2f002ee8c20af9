"""Faults on a whole cluster while it works, and a verdict on what it promised.

`campaign` puts it together: `workload` runs jobs that leave evidence, `client` calls servers in
turn and records every answer, `nemesis` injects faults and heals them, and `judge` compares the
evidence with the definitions. The judge must not know how Rota works.
"""
