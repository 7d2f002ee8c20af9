"""Test kit of Rota itself: builders, fake clocks, real servers, universes, chaos.

Beside the package and not in the wheel; `rota.testing` is what users of Rota need for theirs.
"""
