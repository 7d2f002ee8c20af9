from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.lease import MAX_LEASE, MIN_LEASE, guard_margin, renewal_interval

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
