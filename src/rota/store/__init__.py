"""The durable truth on SQL.

A chapter for each noun: scripts in its `.py`, their statements in the `.sql` of the same name, and
what PostgreSQL says differently in `postgres/`. Scripts do no I/O; `sqlite` and `postgres` have
drivers that run them. `store.py` binds the verbs of the port to scripts.
"""
