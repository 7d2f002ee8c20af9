"""The messages and services of `contracts/rota`, generated when Rota is built or installed.

Only this file is written by hand. Must not be known outside adapters and the gateway.
"""
