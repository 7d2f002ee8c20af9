"""`rota upload`: files and folders that jobs and inputs name by their digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from rota.cli.options import REMOTE, Format, Remote
from rota.cli.printing import print_data
from rota.cli.terminal import CommandFailed, Exit, inert
from rota.sdk.client import Client

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
