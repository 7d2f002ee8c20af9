"""Instants as sentences tell them."""

from __future__ import annotations

from datetime import datetime


def stamp(time: datetime) -> str:
    """`2030-01-01 12:00:00 UTC`, of an instant in UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
