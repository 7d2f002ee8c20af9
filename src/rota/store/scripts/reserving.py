"""One worker of a pool is kept free for the best-ranked run that does not fit now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.placement import Reservation
from rota.domain.resources import Vector, fits
from rota.domain.shape import demand_of
from rota.store.rows import from_json, to_json
from rota.store.script import Query, Row, Script, query
from rota.store.scripts.offers import capacity_in

_LEASE = timedelta(minutes=1) // timedelta(microseconds=1)  # a worker is kept free for so long


@dataclass(frozen=True, slots=True)
class Standing:
    """The reservation of a pool as a claim finds it."""

    pool: str
    session: str  # whose claim it is
    capacity: Vector  # of its worker
    seen: Row | None  # what is written down; None: nothing
    counts: bool  # whether that still holds

    @property
    def here(self) -> Reservation | None:
        """What this very worker is kept free for."""
        if self.seen is None or not self.counts or self.seen["session"] != self.session:
            return None
        return Reservation(self.seen["seq"], demand_of(self.seen["shape"]).on(self.capacity))

    @property
    def kept_free(self) -> str | None:
        """The session whose worker it is."""
        return self.seen["session"] if self.seen is not None and self.counts else None

    def is_for(self, runs: Collection[int]) -> bool:
        """Whether it holds for one of these."""
        return self.seen is not None and self.counts and self.seen["seq"] in runs

    def beside(self, held: Collection[int]) -> Collection[int]:
        """Those attempts of this worker that it got while it was kept free."""
        if self.seen is None or self.here is None:
            return ()
        return set(held) - set(from_json(self.seen["behind"]))


def standing(now: int, pool: str, session: Row) -> Script[Standing]:
    rows = yield query("reservation", pool=pool, now=now)
    seen = rows[0] if rows else None
    counts = bool(seen is not None and seen["counts"])
    return Standing(pool, session["id"], capacity_in(session), seen, counts)


def reserved_run(reservation: Reservation | None, free: Vector) -> Script[list[Row]]:
    """The run that this worker was kept free for, once there is room for it."""
    if reservation is None or not fits(reservation.demand, free):
        return []
    return list((yield query("reserved_run", seq=reservation.run)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim found, and for whom it would keep the worker free."""

    found: Standing
    best: Row | None  # the first by rank that does not fit now
    behind: Collection[int] = ()  # the runs of the worker that go before it

    def keep(self, now: int, going: Collection[int]) -> Script[None]:
        """Keep this worker free for the best run, unless another one is kept free already.

        Runs that are `going` need nothing kept any more. A reservation is prolonged only while it
        is for the best run: else another one gets the next.
        """
        found, seen = self.found, self.found.seen
        is_used = found.is_for(going)
        if self.best is not None and (is_used or not found.counts):
            yield self._reserve(now, self.best, to_json(list(self.behind)))
        elif self.best is not None and seen is not None and self._is_half_over(now, seen):
            yield self._reserve(now, self.best, seen["behind"])
        elif seen is not None and is_used:
            yield query("drop_reservation", pool=found.pool, seq=seen["seq"])

    def _is_half_over(self, now: int, seen: Row) -> bool:
        """Of a reservation here, for the run that is still the best."""
        here = self.found.here
        if here is None or self.best is None or here.run != self.best["seq"]:
            return False
        return bool(seen["expires_at"] - now < _LEASE // 2)

    def _reserve(self, now: int, best: Row, behind: str) -> Query:
        seen = self.found.seen
        return query(
            "reserve",
            pool=self.found.pool,
            seq=best["seq"],
            session=self.found.session,
            shape=best["shape"],
            behind=behind,
            expires_at=now + _LEASE,
            seen_seq=seen["seq"] if seen else None,
            seen_session=seen["session"] if seen else None,
        )
