"""Parameters of a universe, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rota.domain.resources import UNIT, Vector

CHAOS_SECONDS = 25.0  # then everything is mended, and all must come to an end
MAX_DRIFT = 0.06  # of a node's clock: less than the margin by which a worker ends before its lease


@dataclass(frozen=True, slots=True)
class Weather:
    """Probabilities of faults of messages."""

    loss: float
    doubling: float
    delay: float  # of seconds, instead of milliseconds


CALM = Weather(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Fixed parameters of a universe."""

    lease_seconds: float
    weather: Weather
    workers: tuple[Vector, ...]  # what each offers
    servers: int
    faults: int  # crashes and pauses of nodes
    submissions: int
    cancels: int
    holds: int
    carts: int
    failing: float  # of attempts, as a probability
    has_quota: bool  # on what runs at once
    drifts: tuple[float, ...]  # of the clocks of servers, then of workers

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        workers = (_offer(random), _offer(random), _LARGEST)
        servers = 2
        return cls(
            lease_seconds=random.choice((5.0, 8.0, 12.0)),
            weather=Weather(
                loss=random.choice((0.0, 0.01, 0.05, 0.15)),
                doubling=random.choice((0.0, 0.2, 0.5)),
                delay=random.choice((0.0, 0.05, 0.2)),
            ),
            workers=workers,
            servers=servers,
            faults=random.choice((0, 2, 4, 8)),
            submissions=random.randint(2, 6),
            cancels=random.randint(0, 3),
            holds=random.choice((0, 2, 5)),
            carts=random.choice((0, 0, 1, 3)),
            failing=random.choice((0.1, 0.25, 0.5)),
            has_quota=random.random() < 0.3,
            drifts=tuple(
                random.uniform(-MAX_DRIFT, MAX_DRIFT) for _ in range(servers + len(workers))
            ),
        )


_LARGEST: Vector = {"slots": 3 * UNIT, "cpu": 4 * UNIT}  # the only one that fits the large job


def _offer(random: Random) -> Vector:
    return {"slots": random.randint(1, 3) * UNIT, "cpu": random.choice((1, 2)) * UNIT}
