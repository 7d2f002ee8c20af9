from __future__ import annotations

import os

import pytest

from rota.guardian import NamespaceWish, namespace
from rota.guardian.namespace import Mode
from rota.guardian.options import ExitCode, Over


@pytest.fixture
def permit(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(namespace, "is_possible", lambda mode: True)
    return monkeypatch


@pytest.mark.parametrize(
    ("wish", "uid", "mode"),
    [
        ("auto", 0, Mode.NAMESPACE),
        ("auto", 1000, Mode.SUBREAPER),
        ("require", 0, Mode.NAMESPACE),
        ("require", 1000, Mode.USER_NAMESPACE),
        ("off", 0, Mode.SUBREAPER),
        ("off", 1000, Mode.SUBREAPER),
    ],
)
def test_firmest_suitable_mode_is_chosen(
    permit: pytest.MonkeyPatch, wish: NamespaceWish, uid: int, mode: Mode
) -> None:
    permit.setattr(os, "geteuid", lambda: uid)

    assert namespace.choose(wish) is mode


def test_root_without_the_capability_falls_back(permit: pytest.MonkeyPatch) -> None:
    permit.setattr(os, "geteuid", lambda: 0)
    permit.setattr(namespace, "is_possible", lambda mode: mode is Mode.SUBREAPER)

    assert namespace.choose("auto") is Mode.SUBREAPER


def test_required_namespace_that_cannot_be_had_is_explained(permit: pytest.MonkeyPatch) -> None:
    permit.setattr(namespace, "is_possible", lambda mode: mode is Mode.SUBREAPER)

    with pytest.raises(Over) as over:
        namespace.choose("require")

    assert over.value.code is ExitCode.CANNOT_START
    assert "--namespace auto" in over.value.reason
