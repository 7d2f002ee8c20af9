"""Identities: opaque, prefixed, sortable by time where that helps the store."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
WorkerName = NewType("WorkerName", str)
SessionId = NewType("SessionId", str)
ServerId = NewType("ServerId", str)
BackfillId = NewType("BackfillId", str)
CartId = NewType("CartId", str)
TokenId = NewType("TokenId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no look-alikes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIME_CHARS = 11
_HASH_CHARS = 13  # 64 bits: a million jobs due at one instant still get a million ids
_RUN_ID = re.compile(f"r_[{_ALPHABET}]{{{_TIME_CHARS + _HASH_CHARS}}}")
# By so much of an id its run or cart is found: shorter beginnings are those of very many, of all
# projects, and whoever looked through them would learn by the time that takes how many there are.
RUN_BEGINNING = len("r_") + _TIME_CHARS + 3
CART_BEGINNING = len("c_") + 4
SHARD_COUNT = 256


_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)  # ten bits at a time
_DIGITS = _ALPHABET.encode() * 8  # for each byte the digit of its last five bits


def _base32(number: int, length: int) -> str:
    """Encode the last `length` digits of a number."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(length // 2 * 10, -1, -10)]
    return "".join(pairs)[-length:]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def micros(instant: datetime) -> int:
    """Convert to whole microseconds since 1970, the form of stores and wires."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(micros: int) -> datetime:
    """Convert from microseconds; the inverse of `micros`."""
    return _EPOCH + timedelta(microseconds=micros)


def new_job_id() -> JobId:
    return JobId("j_" + _base32(secrets.randbits(60), 12))


def new_backfill_id() -> BackfillId:
    return BackfillId("b_" + _base32(secrets.randbits(60), 12))


def new_cart_id() -> CartId:
    return CartId("c_" + _base32(secrets.randbits(60), 12))


def new_file_id() -> str:
    return "f_" + _base32(secrets.randbits(60), 12)


def new_session_id() -> SessionId:
    return SessionId("w_" + _base32(secrets.randbits(60), 12))


def new_server_id() -> ServerId:
    return ServerId("s_" + _base32(secrets.randbits(60), 12))


def scheduled_run_id(job: JobId, due_at: datetime) -> RunId:
    """Derive the only id of a job's run at this due time: the primary key keeps it unique."""
    return RunId("r_" + _time_digits(due_at) + _digits_of(job))


def following_run_id(job: JobId, upstream: RunId) -> RunId:
    """Derive the only id that a job's run after the completion of another run can have."""
    digits = _base32(_hash(f"{job} {upstream}"), _HASH_CHARS)
    return RunId(upstream[: len("r_") + _TIME_CHARS] + digits)


@lru_cache(maxsize=100)
def _time_digits(when: datetime) -> str:
    """Encode a time; thousands of runs are asked for, or due, at one instant."""
    return _base32(micros(when), _TIME_CHARS)


@lru_cache(maxsize=10_000)
def _digits_of(job: JobId) -> str:
    return _base32(_hash(job), _HASH_CHARS)


def new_run_id(now: datetime) -> RunId:
    """Make an id for a run that no schedule asked for."""
    return RunId("r_" + _time_digits(now) + _base32(secrets.randbits(64), _HASH_CHARS))


def new_run_ids(now: datetime, count: int) -> list[RunId]:
    """Make ids for many runs at once, in a tenth of the time."""
    start, length = "r_" + _time_digits(now), _HASH_CHARS * count
    digits = secrets.randbits(8 * length).to_bytes(length, "big").translate(_DIGITS).decode()
    return [RunId(start + digits[at : at + _HASH_CHARS]) for at in range(0, length, _HASH_CHARS)]


def is_run_id(text: str) -> bool:
    """Return whether a text that comes from outside can be the id of a run."""
    return _RUN_ID.fullmatch(text) is not None


def is_run_beginning(text: str) -> bool:
    """Return whether a text is enough of a run's id to look for it, and not all of it."""
    return text.startswith("r_") and len(text) >= RUN_BEGINNING and not is_run_id(text)


def is_cart_beginning(text: str) -> bool:
    """Return whether a text is enough of a cart's id to look for it."""
    return text.startswith("c_") and len(text) >= CART_BEGINNING


def stable_fraction(*parts: str) -> float:
    """Hash parts to a stable number in [0, 1): jitter without memory."""
    return (_hash("\0".join(parts)) >> 11) / (1 << 53)


def shard_of(identity: str) -> int:
    """Return the virtual shard a job or cart belongs to."""
    return _hash(identity) % SHARD_COUNT
