from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.lease import (
    MAX_LEASE,
    MIN_LEASE,
    Sight,
    guard_margin,
    is_silent,
    look_at,
    renewal_interval,
)

LEASES = [MIN_LEASE, timedelta(seconds=3), timedelta(seconds=30), timedelta(minutes=10), MAX_LEASE]


@pytest.mark.parametrize("lease", LEASES)
def test_a_worker_has_three_chances_to_renew(lease: timedelta) -> None:
    assert 3 * renewal_interval(lease) <= lease < 3.01 * renewal_interval(lease)


@pytest.mark.parametrize("lease", LEASES)
def test_a_renewal_is_due_long_before_the_guardian_kills(lease: timedelta) -> None:
    assert renewal_interval(lease) < lease - guard_margin(lease)


@pytest.mark.parametrize(("lease", "margin"), [(1.5, 0.5), (6, 2), (12, 2), (30, 3), (600, 60)])
def test_everything_is_dead_before_the_store_lets_another_in(lease: float, margin: float) -> None:
    assert guard_margin(timedelta(seconds=lease)) == timedelta(seconds=margin)


LEASE = timedelta(seconds=30)


def test_a_session_seen_for_the_first_time_has_its_whole_lease() -> None:
    sight = look_at(None, beats=7, now=100.0)

    assert not is_silent(sight, LEASE, now=130.0)
    assert is_silent(sight, LEASE, now=130.1)


def test_looking_again_does_not_prolong_the_silence_allowed() -> None:
    sight = look_at(Sight(7, since=100.0), beats=7, now=129.0)

    assert is_silent(sight, LEASE, now=131.0)


def test_another_beat_begins_a_lease() -> None:
    sight = look_at(Sight(7, since=100.0), beats=8, now=131.0)

    assert not is_silent(sight, LEASE, now=161.0)
