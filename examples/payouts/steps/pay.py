"""The payout: paid once, whatever happens in between, as the ledger knows it by the run's id."""

from __future__ import annotations

import os
import sys

from calls import ask

payment = {
    "key": os.environ["ROTA_RUN_ID"],
    "fence": int(os.environ["ROTA_FENCE"]),
    "to": os.environ["INPUT_TO"],
    "cents": int(os.environ["INPUT_CENTS"]),
}
status, answer = ask("/payments", payment)
if status not in (200, 201):
    sys.exit(f"the ledger refuses it: {answer}")
print(f"paid {answer['cents'] / 100:.2f} to {answer['to']}")
