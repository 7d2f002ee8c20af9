"""The transactions, one module a concern. Decisions come from `rota.domain`."""
