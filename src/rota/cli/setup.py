"""Commands that set Rota up on this machine: settings, checks, completion, schema, version."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import App, Parameter

from rota import __version__
from rota.cli.failures import errors_as_failures
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import Column, print_data, write_table
from rota.cli.terminal import Exit
from rota.runtime import config
from rota.runtime import doctor as examination
from rota.runtime.config import Origin
from rota.runtime.doctor import Finding, Verdict
from rota.runtime.offline import file_schema
from rota.runtime.settings import MEANINGS, Settings


def load_settings(**flags: object) -> Settings:
    """Load the settings in force; a flag that is None was not given."""
    with errors_as_failures():
        return config.load(flags)


_COLUMNS: tuple[Column[Finding], ...] = (
    Column("CHECK", lambda finding: finding.subject),
    Column("VERDICT", lambda finding: finding.verdict),
    Column("FOUND", lambda finding: finding.message),
    Column("DO", lambda finding: finding.advice or "–"),
)


def doctor(*, display: Display = DISPLAY) -> Exit:
    """Check Python, data folder, store, clock, queue, blobs, servers, guardian; change nothing."""
    findings = examination.run(load_settings())
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, [asdict(finding) for finding in findings])
    else:
        write_table(display.terminal(), _COLUMNS, findings)
    is_ill = any(finding.verdict is Verdict.PROBLEM for finding in findings)
    return Exit.UNEXPECTED if is_ill else Exit.DONE


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
    with errors_as_failures():
        settings = config.shown_with_origins()
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
    with errors_as_failures():
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


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Your shell.")], /
) -> None:
    """Print a completion script.

    bash: source <(rota completion bash), in ~/.bashrc
    zsh: rota completion zsh > a file _rota in your fpath
    fish: rota completion fish > ~/.config/fish/completions/rota.fish
    """
    from rota.cli.program import build

    sys.stdout.write(build().generate_completion(prog_name="rota", shell=shell))


def version(*, display: Display = DISPLAY) -> None:
    """Print the version."""
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, {"rota": __version__, "python": platform.python_version()})
    else:
        display.terminal().write(f"rota {__version__}")


def schema(*, display: Display = DISPLAY) -> None:
    """Print the JSON Schema of the job file, for editors and other programs."""
    print_data(display, file_schema())
