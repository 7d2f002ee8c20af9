"""What the steps of the payouts ask the ledger. Its address is in LEDGER."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any


def ask(path: str, body: object = None) -> tuple[int, Any]:
    """Return the status and the answer; raise `OSError` if there was none."""
    request = urllib.request.Request(
        f"{os.environ['LEDGER']}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
