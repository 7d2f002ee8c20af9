"""What the server answers about tokens, and who shows them."""

from __future__ import annotations

from rota.api.tokens import Caller, NewToken, NewWorkerToken, Token, WorkerToken

__all__ = [
    "Caller",
    "NewToken",
    "NewWorkerToken",
    "Token",
    "WorkerToken",
]
