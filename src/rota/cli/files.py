"""Files: `rota upload`, those that inputs of runs name, and what runs left behind."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from rota.cli import times
from rota.cli.failures import counted
from rota.cli.options import REMOTE, AtMost, Format, Remote
from rota.cli.printing import Column, ListView, print_data, print_list
from rota.cli.references import LatestRunReference, ask_list, run_or_latest
from rota.cli.terminal import CommandFailed, Exit, inert
from rota.sdk.answers import Artifact
from rota.sdk.client import Client
from rota.sdk.exchange import Call

app = App(name="upload", usage="rota upload [OPTIONS] PATH…")


@app.default
def upload(
    *path: Annotated[
        Path, Parameter(name="PATH…", required=True, help="Files, or folders, which are packed.")
    ],
    remote: Remote = REMOTE,
) -> None:
    """Upload files and folders; print the digest of each, for `source: {upload: DIGEST}`.

    What the project has already is not sent again. What no job or run names is kept for a day.
    """
    with remote.connect() as client:
        sent = [client.upload(each) for each in path]
    if remote.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(remote, sent[0] if len(sent) == 1 else sent)
        return
    terminal = remote.terminal()
    for each in sent:
        terminal.write(each["digest"])
        source = f"source: {{upload: {{digest: {each['digest']}, name: {inert(each['file'])}}}}}"
        terminal.tell(f"{inert(each['file'])}, {each['size']:,} bytes · in a job: {source}")


def as_inputs(client: Client, job: str, given: dict[str, str]) -> dict[str, Any]:
    """Return the inputs of a run, with the files that `NAME=@FILE` gives uploaded.

    Only an input that is a file is taken so: to any other, `@…` is a text.
    """
    if not any(value.startswith("@") for value in given.values()):
        return dict(given)
    declared = client.get_job(job).document.get("inputs", {})
    return {
        name: _sent(client, name, value) if _is_file(declared.get(name)) else value
        for name, value in given.items()
    }


def _is_file(declared: Any) -> bool:
    return isinstance(declared, dict) and declared.get("type") == "file"


def _sent(client: Client, name: str, value: str) -> dict[str, Any]:
    if not value.startswith("@"):
        message = f'input "{name}" is a file, not "{value}"'
        raise CommandFailed(message, code=Exit.USAGE, hint=f"--input {name}=@FILE")
    path = Path(value[1:])
    if path.is_dir():
        message = f"{path} is a folder, and input {name} is one file"
        raise CommandFailed(message, code=Exit.USAGE, hint="pack it: tar -czf FILE.tar.gz FOLDER")
    return client.upload(path)


# --- artifacts

Attempt: TypeAlias = Annotated[int | None, Parameter(help="Only this attempt's.")]

_VIEW: ListView[Artifact] = ListView(
    columns=(
        Column("PATH", lambda it: it.path, is_whole=True),
        Column("BYTES", lambda it: f"{it.size:,}"),
        Column("ATTEMPT", lambda it: str(it.attempt)),
        Column("STEP", lambda it: str(it.step + 1)),
        Column("KEPT UNTIL", lambda it: times.moment(it.keep_until, times.now()), is_spare=True),
        Column("DIGEST", lambda it: it.digest, only_wide=True),
    ),
    name=lambda it: it.path,
    empty="this run has left nothing behind: its steps name what is kept under artifacts",
)


def artifacts(
    run: LatestRunReference,
    /,
    *,
    attempt: Attempt = None,
    limit: AtMost = 1_000,
    remote: Remote = REMOTE,
) -> None:
    """List the files that the steps of a run left behind."""
    with remote.connect() as client:
        found = run_or_latest(client, run)
        listing = ask_list(client, Client.list_artifacts(found, attempt=attempt), limit=limit)
    print_list(remote, listing, _VIEW)


def download(
    run: LatestRunReference,
    path: Annotated[
        str | None, Parameter(help="Which file, or a folder for all in it; all, unless given.")
    ] = None,
    /,
    *,
    to: Annotated[str, Parameter(metavar="DIR", help="Where to. Default: here.")] = ".",
    stdout: Annotated[bool, Parameter(help="Print one file instead.")] = False,
    attempt: Attempt = None,
    overwrite: Annotated[bool, Parameter(help="Replace files that are there.")] = False,
    remote: Remote = REMOTE,
) -> Exit:
    """Download files that a run left behind, below a folder of this machine.

    Of several attempts and steps with the same file, it is the latest one's.
    """
    with remote.connect() as client:
        found = run_or_latest(client, run)
        listed = client.each(Client.list_artifacts(found, attempt=attempt, limit=1_000))
        wanted = _latest(listed, path)
        if not wanted:
            message = f"run {found} has no artifact {path}" if path else f"run {found} has none"
            hint = f"rota run artifacts {found}"
            raise CommandFailed(inert(message), code=Exit.NOT_FOUND, hint=hint)
        if stdout:
            _print(client, wanted)
            return Exit.DONE
        for each in wanted:
            _save(client, each, Path(to), overwrite=overwrite)
    size = sum(each.size for each in wanted)
    terminal = remote.terminal()
    terminal.tell(f"{counted(len(wanted), 'file')}, {size:,} bytes, to {inert(str(Path(to)))}")
    return Exit.DONE


def _latest(listed: Iterable[Artifact], path: str | None) -> Sequence[Artifact]:
    """Return the latest of each path; they come in the order of attempts and steps."""
    below = None if path is None else f"{path.rstrip('/')}/"
    latest = {
        each.path: each
        for each in listed
        if path is None or each.path == path or each.path.startswith(below or "")
    }
    return list(latest.values())


def _print(client: Client, wanted: Sequence[Artifact]) -> None:
    if len(wanted) > 1:
        message = "only one file goes to standard output"
        raise CommandFailed(message, code=Exit.USAGE, hint="name it: rota run download RUN PATH")
    sys.stdout.flush()
    for data in client.stream(_call(wanted[0])):
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _call(artifact: Artifact) -> Call[bytes]:
    return Client.get_artifact(
        artifact.run, artifact.path, attempt=artifact.attempt, step=artifact.step
    )


def _save(client: Client, artifact: Artifact, folder: Path, *, overwrite: bool) -> None:
    """Write a file below a folder: whole and verified, or not at all."""
    parts = PurePosixPath(artifact.path).parts
    if not parts or artifact.path.startswith("/") or ".." in parts:  # whatever a server says
        message = f"{inert(artifact.path)} does not lead below {folder}"
        raise CommandFailed(message, code=Exit.UNEXPECTED)
    target = folder.joinpath(*parts)
    if not overwrite and os.path.lexists(target):
        hint = "--overwrite replaces it, --to names another folder"
        raise CommandFailed(f"{target} is there already", code=Exit.CONFLICT, hint=hint)
    aside = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        found = hashlib.sha256()
        with aside.open("wb") as file:
            for data in client.stream(_call(artifact)):
                found.update(data)
                file.write(data)
        if f"sha256:{found.hexdigest()}" != artifact.digest:
            message = f"{inert(artifact.path)} came with other bytes than it was kept with"
            raise CommandFailed(message, code=Exit.UNEXPECTED, hint="try again")
        aside.replace(target)
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise CommandFailed(message, code=Exit.UNEXPECTED) from error
    finally:
        aside.unlink(missing_ok=True)
