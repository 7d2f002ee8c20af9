"""`rota config`: the settings of this machine, and where each comes from."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.cli.local_errors import told_as_failures
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data
from rota.cli.table import Column, write_table
from rota.runtime import config
from rota.runtime.config import Origin
from rota.runtime.settings import MEANINGS

app = App(name="config", help="Settings, and where each comes from.")

_NAME: Column[Origin] = Column("SETTING", lambda setting: setting.name)
_VALUE: Column[Origin] = Column("VALUE", lambda setting: setting.value or "–")
_ORIGIN: Column[Origin] = Column("FROM", lambda setting: setting.origin)
_MEANING: Column[Origin] = Column("MEANING", lambda setting: MEANINGS[setting.name])


@app.command
def show(
    *,
    origin: Annotated[bool, Parameter(help="Where each value comes from.")] = False,
    display: Display = DISPLAY,
) -> None:
    """Show every setting; all of them take effect with the next start."""
    with told_as_failures():
        _, settings = config.load_with_origins()
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, [_document(setting) for setting in settings])
        return
    columns = [_NAME, _VALUE, *([_ORIGIN] if origin else []), _MEANING]
    write_table(display.terminal(), columns, settings)


@app.command
def path(*, display: Display = DISPLAY) -> None:
    """List the files that settings are read from, the strongest first."""
    files = [(str(file), file.is_file()) for file in config.config_files()]
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, [{"path": file, "exists": exists} for file, exists in files])
        return
    for file, exists in files:
        display.terminal().write(file if exists else f"{file} (not there)")


@app.command
def check(*, display: Display = DISPLAY) -> None:
    """Check the settings; every problem is told."""
    with told_as_failures():
        config.load()
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, {"valid": True})
    else:
        display.terminal().tell("the settings are fine")


def _document(setting: Origin) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "origin": setting.origin,
        "restart_needed": True,
    }
