"""Steering one run that waits."""

from __future__ import annotations

from rota.sdk.answers import Run
from rota.sdk.exchange import Call, path_of, post


def hold_run(run: str) -> Call[Run]:
    """Keep a run that waits from starting until it is released."""
    return post(Run, f"{path_of('runs', run)}:hold")


def release_run(run: str) -> Call[Run]:
    """End a hold: the run waits again like any other."""
    return post(Run, f"{path_of('runs', run)}:release")


def reprioritise_run(run: str, priority: int) -> Call[Run]:
    """Give a run that waits another priority, 0 to 9; 9 goes first."""
    return post(Run, f"{path_of('runs', run)}:reprioritise", {"priority": priority})
