"""What attempts have used of a key where only their end tells how much: output.

Whoever ends them writes it down without a lock, and whoever locks the key next takes it out of the
bucket. It counts from the end of the attempt on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter

from rota.domain.keys import (
    OUTPUT_QUOTA,
    Bucket,
    Key,
    KeyRule,
    Rate,
    charged_for_output,
    is_charged_later,
)
from rota.store.rows import from_json
from rota.store.script import Many, Row, Script, query

_in_order = itemgetter("key", "at", "seq")


def charge_output(now: int, ended: Iterable[tuple[Row, int]]) -> Script[None]:
    """Attempts, given by their runs, have ended after so many bytes of output."""
    charged = [
        (row, size) for row, size in ended if size > 0 and OUTPUT_QUOTA in (row["keys"] or "")
    ]
    sizes: Counter[Key] = Counter()
    for row, size in charged:
        if (key := charged_for_output(from_json(row["keys"]))) is not None:
            sizes[key] += size
    if sizes:
        seq = min(row["seq"] for row, _ in charged)
        yield Many("charge_key", [(key, now, seq, size) for key, size in sorted(sizes.items())])


def with_charges(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[Mapping[Key, Bucket]]:
    """The buckets of these keys without what is charged and was not taken out of them yet."""
    keys = [key for key in rules if is_charged_later(key)]
    rows = (yield query("key_charges", keys=keys)) if keys else ()
    return _charged(rules, buckets, rows)


def take_charges(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[Mapping[Key, Bucket]]:
    """The same of keys that are locked; it is out of the buckets from now on."""
    keys = [key for key in rules if is_charged_later(key)]
    rows = (yield query("take_key_charges", keys=keys)) if keys else ()
    left = _charged(rules, buckets, sorted(rows, key=_in_order))
    changed = sorted({row["key"] for row in rows})
    if changed:
        yield Many("set_bucket", [(left[key].level, left[key].at, key) for key in changed])
    return left


def _charged(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket], charges: Iterable[Row]
) -> Mapping[Key, Bucket]:
    left = dict(buckets)
    for row in charges:
        key, at, rule = row["key"], row["at"], rules[row["key"]]
        assert isinstance(rule, Rate), "only buckets are charged"
        left[key] = (left.get(key) or Bucket.full(rule, at)).take(row["amount"], at)
    return left
