"""Calls about files: uploads, what lies beside a job file, and artifacts of runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rota.api.answers import Page
from rota.api.files import Artifact, Upload
from rota.api.plans import Plan
from rota.sdk.errors import NotFound
from rota.sdk.exchange import Body, Call, get, path_of
from rota.sdk.jobs import apply
from rota.sdk.packing import packed, sources_beside, with_uploads
from rota.sdk.verbs import Flow, Verb, Waiting, ask


def get_upload(digest: str) -> Call[Upload]:
    """Get what the project has under a digest; it is kept for a day from now on at least."""
    return get(Upload, path_of("uploads", digest))


def put_upload(digest: str, body: Body, size: int | None = None) -> Call[Upload]:
    """Upload bytes with this digest; the same again is harmless."""
    headers = {"Content-Type": "application/octet-stream"}
    if size is not None:
        headers["Content-Length"] = str(size)
    return Call(Upload, "PUT", path_of("uploads", digest), {}, headers, body)


def upload(path: Path | str) -> Flow[Any, dict[str, Any]]:
    """Upload a file, or a folder as an archive; return how inputs name it: file, digest, size.

    What the project has already is not sent again.
    """
    return (yield from _upload(Path(path), (None,)))


def _upload(path: Path, projects: Iterable[str | None]) -> Flow[Any, dict[str, Any]]:
    """Upload to projects; None is the client's own."""
    with packed(path) as file:
        for project in projects:
            own = {} if project is None else {"project": project}
            try:
                yield from ask(get_upload(file.digest).with_query(**own))
            except NotFound as error:
                if error.code != "file_not_found":  # the project is not there either
                    raise
                yield from ask(put_upload(file.digest, file.body, file.size).with_query(**own))
        return {"file": file.name, "digest": file.digest, "size": file.size}


def upload_sources(text: str, folder: Path | str) -> Flow[Any, str]:
    """Upload what a job file in `folder` names beside it; return it with the uploads instead."""
    sources = sources_beside(text, Path(folder))
    uploads: dict[str, dict[str, str]] = {}
    for source in sources:
        sent = yield from _upload(Path(folder) / source.path, source.projects)
        uploads[source.path] = {"digest": sent["digest"], "name": sent["file"]}
    return with_uploads(text, sources, uploads)


def apply_file(
    path: Path | str, *, plan: bool = False, prune: bool = False, if_match: str | None = None
) -> Flow[Any, Plan]:
    """Apply a job file of this machine, as `apply` does; what lies beside it is uploaded."""
    file = Path(path)
    text = yield from upload_sources(file.read_text("utf-8"), file.parent)
    call = apply(text, name=file.stem, plan=plan, prune=prune, if_match=if_match)
    return (yield from ask(call))


def list_artifacts(
    run: str, *, attempt: int | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Artifact]]:
    """List the files that the steps of a run left behind, by attempt, step and path."""
    call = get(Page[Artifact], path_of("runs", run, "artifacts"), attempt=attempt)
    return call.with_query(limit=limit, cursor=cursor)


def get_artifact(
    run: str, path: str, *, attempt: int | None = None, step: int | None = None
) -> Call[bytes]:
    """Get the bytes of a file that a run left behind; large ones are better streamed than sent."""
    below = path_of("runs", run, "artifacts", *path.split("/"))
    return get(bytes, below, attempt=attempt, step=step)


class FileVerbs:
    apply_file = Waiting(apply_file)
    get_artifact = Verb(get_artifact)
    get_upload = Verb(get_upload)
    list_artifacts = Verb(list_artifacts)
    put_upload = Verb(put_upload)
    upload = Waiting(upload)
    upload_sources = Waiting(upload_sources)
