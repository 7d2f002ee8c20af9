"""What tests of shared keys have in common."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.ids import RunId
from rota.domain.keys import Declaration
from rota.domain.states import RunState
from testkit.builders import Scene


async def declare(scene: Scene, *declarations: Declaration) -> None:
    await scene.store.save_declarations(declarations, actor="editor")


async def keep(scene: Scene) -> int:
    """What the key keeper does until nothing is left to do."""
    count = 0
    while released := await scene.store.release_keys(200):
        count += released
    return count


async def in_state(scene: Scene, runs: Sequence[RunId], state: RunState) -> list[RunId]:
    return [run for run in runs if await scene.state(run) is state]
