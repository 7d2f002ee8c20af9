"""Carts: many items rolled out wave by wave, within a failure budget.

Pure: it is given facts and the time, and answers with what to do. It knows nothing of stores, of
how runs are made, or of who is allowed to see what.
"""
