"""`rota import`: take over what another scheduler did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rota.cli.exits import CommandFailed, Exit
from rota.cli.failures import counted, describe_problem
from rota.cli.files import read_text
from rota.cli.options import Display
from rota.runtime.offline import host_timezone, import_crontab

app = App(name="import", help="Turn a crontab into a job file.")


@app.command
def crontab(
    file: Annotated[Path, Parameter(help="A crontab; - is standard input.")],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Write the job file here, not to standard output."),
    ] = None,
    tz: Annotated[
        str | None, Parameter(name="--tz", help="Time zone of the crontab. Default: this host's.")
    ] = None,
    system: Annotated[
        bool, Parameter(help="Its lines have a user column, as in /etc/crontab.")
    ] = False,
) -> Exit:
    """Turn a crontab into a job file; lines that cannot be taken over are told."""
    source = read_text(file)
    terminal = Display().terminal()
    imported = import_crontab(source.text, timezone=tz or host_timezone(), system=system)
    for problem in imported.problems:
        terminal.tell(describe_problem(problem, file=source.label, error_label="left out: "))
    if out is None:
        terminal.write(imported.text.removesuffix("\n"))
    else:
        _write(out, imported.text)
        terminal.tell(f"wrote {out} · look at it, then: rota apply {out} --plan")
    left_out = sum(not problem.warning for problem in imported.problems)
    if left_out:
        terminal.tell(f"{counted(left_out, 'line')} left out")
    return Exit.INVALID_FILE if left_out else Exit.DONE


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise CommandFailed(message, code=Exit.UNEXPECTED) from error
