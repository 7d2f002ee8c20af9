"""The probe: was a payout booked whose worker vanished? 0: yes. 2: no, and never will be."""

from __future__ import annotations

import os
import sys

from calls import ask

key, fence = os.environ["ROTA_RUN_ID"], int(os.environ["ROTA_FENCE"])
status, answer = ask(f"/payments/{key}/settle", {"fence": fence})
if status != 200:
    sys.exit(75)  # no answer: asked again later
print(f"attempt {fence} of {key}: {'paid' if answer['is_paid'] else 'not paid, and called off'}")
sys.exit(0 if answer["is_paid"] else 2)
