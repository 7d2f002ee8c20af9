"""Plug-ins that a worker's settings name: what is loaded, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.plugins import Place
from rota.runtime import config
from rota.runtime.plugins import Brought, bring_plugins
from rota.testing.bench import Reports

pytestmark = pytest.mark.anyio

MODULE = """
from rota.plugins import Plugin

class Executor:
    def __init__(self, place): self.place = place
    def start(self, batches): ...
    def cancel(self, fences): ...
    async def close(self): ...

def fail(place): raise OSError("no bell")

bell = Plugin(api_version=1, type="bell", build=Executor, schema={"type": "object"})
later = Plugin(api_version=2, type="later", build=Executor)
other = Plugin(api_version=1, type="bell", build=Executor)
both = Plugin(api_version=1, type="both", build=Executor, executor=Executor)
none = Plugin(api_version=1, type="none")
odd = Plugin(api_version=1, type="odd", build=Executor, schema={"type": "list"})
sick = Plugin(api_version=1, type="sick", build=fail)
idle = Plugin(api_version=1, type="idle", build=lambda place: None)

class Odd(Plugin):
    @property
    def api_version(self): raise LookupError("which one?")
    @api_version.setter
    def api_version(self, value): ...

wild = object.__new__(Odd)
text = "a plug-in"
"""
POINTS = {
    "bell": "bells:bell",
    "later": "bells:later",
    "other": "bells:other",
    "both": "bells:both",
    "none": "bells:none",
    "odd": "bells:odd",
    "sick": "bells:sick",
    "idle": "bells:idle",
    "wild": "bells:wild",
    "text": "bells:text",
    "gone": "bells:gone",
    "exits": "exits:plugin",
    "wordy": "wordy:plugin",
    "shell": "bells:bell",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package in it, as an installer leaves it."""
    folder = tmp_path / "site"
    info = folder / "bells-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bells\nVersion: 1.0\n")
    points = "".join(f"{name} = {place}\n" for name, place in POINTS.items())
    (info / "entry_points.txt").write_text(f"[rota.executors]\n{points}")
    (folder / "bells.py").write_text(MODULE)
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "wordy.py").write_text("raise OSError('\\ud800' * 10_000_000)\n")
    monkeypatch.syspath_prepend(folder)
    return folder


class NoProcesses:
    def spawn(self, *_: object, **__: object) -> object:
        raise AssertionError("nothing is started")


async def brought(folder: Path, *names: str) -> Brought:
    reports = Reports()
    place = Place(
        reports,
        reports,
        SystemClock(),
        NoProcesses(),  # type: ignore[arg-type]
        folder / "plugins",
        lambda: True,
    )
    found = Brought()
    await bring_plugins(found, names, place)
    return found


async def test_what_is_named_is_loaded_and_nothing_else(installed: Path) -> None:
    found = await brought(installed, "bell")

    assert [(offer.name, offer.reason) for offer in found.offers] == [("bell", "")]
    assert [(note.name, note.api_version, note.schema) for note in found.notes] == [
        ("bell", 1, '{"type": "object"}')
    ]
    assert list(found.executors) == ["bell"]


async def test_without_the_setting_nothing_is_even_looked_for(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(**_: object) -> object:
        raise AssertionError("it looked for plug-ins")

    monkeypatch.setattr("rota.runtime.plugins.entry_points", look)

    assert (await brought(installed)).offers == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("later", "it has api_version 2, and this release of Rota has 1"),
        ("other", "its entry point is other, and its type bell: they must be equal"),
        ("both", "it must have either an executor class or a function that builds one"),
        ("none", "it must have either an executor class or a function that builds one"),
        ("odd", "its schema cannot be used"),
        ("sick", "it cannot be built: OSError: no bell"),
        ("text", "it has api_version None"),
        ("gone", "it cannot be loaded"),
        ("exits", "it cannot be loaded: "),
        ("shell", "no plug-in can have this name"),
        ("Bell", "no plug-in can have this name"),
        ("idle", "what it builds has no start(), which an executor needs"),
        ("wild", "it cannot be used: LookupError: which one?"),
        ("absent", "no installed package has the entry point rota.executors absent; installed are"),
    ],
)
async def test_what_is_wrong_with_one_is_its_offer_s_reason(
    installed: Path, name: str, reason: str
) -> None:
    found = await brought(installed, name, "bell")

    told = {offer.name: offer.reason for offer in found.offers}
    assert told[name].startswith(reason)
    assert (told["bell"], list(found.executors)) == ("", ["bell"])


async def test_a_long_reason_fits_a_hello(installed: Path) -> None:
    found = await brought(installed, "wordy")

    [offer] = found.offers
    assert (len(offer.reason), offer.reason.encode().decode()) == (1_000, offer.reason)


def test_the_setting_names_types() -> None:
    settings = config.load(environ={"ROTA_EXECUTORS": "ticket, bell,ticket"})

    assert settings.executors == ("ticket", "bell")
