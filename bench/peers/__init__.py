"""The peers: installed into an environment of their own, run with its Python.

The modules beside this one run there, so they import nothing of Rota.
"""
