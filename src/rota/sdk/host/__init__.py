"""The function host: the process in which a worker's Python functions run.

`python -m rota.sdk.host MODULE:app SOCKET` connects to its worker and serves until told to stop.
It knows functions and attempts by key; timeouts and graces are the worker's, and it decides
what an end means.
"""
