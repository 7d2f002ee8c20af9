from __future__ import annotations

import pytest

from rota.guardian import processes


def test_of_very_many_processes_only_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that starts a hundred thousand must not keep the guardian from answering."""
    monkeypatch.setattr(processes, "_children", lambda pid: [pid + 1] if pid < 100_000 else [])

    assert processes.descendants(1) == list(range(2, 5_002))


def test_each_process_comes_after_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    children = {1: [2, 3], 2: [4], 3: [], 4: [5]}
    monkeypatch.setattr(processes, "_children", lambda pid: children.get(pid, []))

    assert processes.descendants(1) == [2, 3, 4, 5]
