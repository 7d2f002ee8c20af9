"""Forecast: every start of the time ahead, placed on the workers that are there.

Pure: it is given the time and what is known, and decides nothing itself. Where and when runs start
is decided by `rota.domain.simulation`, and so by the very rules of the scheduler.
"""
