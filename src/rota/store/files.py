"""Files that are kept of projects: reserved, written, kept, and gone; and artifacts of runs.

A file is `writing` from its first byte, `kept` once all bytes are there, and `going` from when
nobody needs it until its bytes are deleted. All that changes what a project has in files begins
with its row of `file_sum`, which is locked by that: so two uploads never share the last bytes of a
quota, and two of the same digest are kept as one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from rota.domain.errors import Conflict
from rota.domain.files import ABANDONED_AFTER, UNUSED_FOR
from rota.domain.ids import JobId, RunId, SessionId, instant
from rota.domain.quantities import format_size
from rota.ports.files import (
    Artifact,
    ArtifactQuery,
    HeldAttempt,
    KeptFile,
    NewArtifact,
    SpentFile,
)
from rota.ports.work import Fence
from rota.store.rows import from_json
from rota.store.script import Row, Script, query
from rota.store.tx import Tx

_DIGESTS = re.compile(r"sha256:[0-9a-f]{64}")
_LIKE = "%sha256:%"


def _later(tx: Tx, span: timedelta) -> int:
    return tx.now + span // timedelta(microseconds=1)


def begin(tx: Tx, new: KeptFile, most: int | None) -> Script[None]:
    """Note a file whose bytes are about to come, and reserve its size."""
    yield query("add_file_sum", project=new.project)
    yield from _reserve(new.project, new.size, most)
    yield query(
        "insert_file",
        id=new.id,
        project=new.project,
        digest=new.digest,
        size=new.size,
        now=tx.now,
        keep_until=_later(tx, ABANDONED_AFTER),
    )


def grow(tx: Tx, file: KeptFile, more: int, most: int | None) -> Script[None]:
    """Reserve more for a file, and keep it from being taken for abandoned."""
    yield from _reserve(file.project, more, most)
    keep_until = _later(tx, ABANDONED_AFTER)
    if not (yield query("grow_file", id=file.id, more=more, keep_until=keep_until)):
        raise _abandoned()


def _reserve(project: str, more: int, most: int | None) -> Script[None]:
    if (yield query("reserve_bytes", project=project, more=more, most=most)) or more <= 0:
        return
    [row] = yield query("sum_of_files", project=project)
    raise Conflict(
        f"project {project} may have {format_size(most or 0)} of files, and has"
        f" {format_size(row['bytes'])}: there is no room for {format_size(more)} more",
        code="file_quota",
        hint="delete runs or wait until artifacts expire, or ask an admin: rota quota set",
        facts={"most": most, "present": row["bytes"], "more": more},
    )


def _abandoned() -> Conflict:
    return Conflict(
        "nothing came of this file for so long that it was given up",
        code="upload_abandoned",
        hint="send it again",
    )


def finish(tx: Tx, file: KeptFile, use: NewArtifact | None = None) -> Script[KeptFile]:
    """Keep a file whose bytes are all there, perhaps as an artifact of an attempt."""
    if use is not None:  # locked first, as runs come before what they leave
        yield query("runs_to_change", ids=[use.fence.run])
        if (yield from held_attempt(use.session, use.fence)) is None:
            raise Conflict("the attempt is not this worker's any more", code="stale_attempt")
    yield query("add_file_sum", project=file.project)
    yield query("reserve_bytes", project=file.project, more=0, most=None)
    written = yield query("written_file", id=file.id)
    if not written:
        raise _abandoned()
    more = file.size - written[0]["size"]
    if more:
        yield query("reserve_bytes", project=file.project, more=more, most=None)
    keep_until = _later(tx, UNUSED_FOR if use is None else use.keep)
    twins = yield query("kept_files", project=file.project, digests=[file.digest])
    state = "going" if twins else "kept"
    until = tx.now if twins else keep_until
    yield query("settle_file", id=file.id, size=file.size, state=state, keep_until=until)
    if twins:
        yield query(
            "keep_files", project=file.project, digests=[file.digest], keep_until=keep_until
        )
    if use is not None:
        yield query(
            "keep_artifact",
            run=use.fence.run,
            attempt=use.fence.number,
            step=use.step,
            path=use.path,
            project=file.project,
            digest=file.digest,
            size=file.size,
            now=tx.now,
            keep_until=keep_until,
        )
    return _file(twins[0]) if twins else file


def _file(row: Row) -> KeptFile:
    return KeptFile(row["id"], row["project"], row["digest"], row["size"])


def forget(tx: Tx, ids: Collection[str]) -> Script[int]:
    """Forget files whose bytes are gone, and what they have of the quota."""
    projects = sorted(row["project"] for row in (yield query("projects_of_files", ids=ids)))
    for project in projects:
        yield query("reserve_bytes", project=project, more=0, most=None)
    gone = yield query("delete_files", ids=ids)
    sizes: Counter[str] = Counter()
    for row in gone:
        sizes[row["project"]] += row["size"]
    for project in projects:
        yield query("reserve_bytes", project=project, more=-sizes[project], most=None)
    return len(gone)


def touch(
    tx: Tx, project: str, digests: Collection[str], keep: timedelta
) -> Script[dict[str, KeptFile]]:
    """Keep these files of a project for so long at least; returns those that are there."""
    yield query("reserve_bytes", project=project, more=0, most=None)
    yield query("keep_files", project=project, digests=digests, keep_until=_later(tx, keep))
    rows = yield query("kept_files", project=project, digests=digests)
    return {row["digest"]: _file(row) for row in rows}


def spent(now: int, limit: int) -> Script[list[SpentFile]]:
    rows = yield query("spent_files", now=now, limit=limit)
    return [SpentFile(_file(row), row["state"] == "kept") for row in rows]


def needed(project: str) -> Script[frozenset[str]]:
    """The digests that jobs, live runs and carts of a project name."""
    texts = [
        row["document"]
        for row in (yield query("documents_with_files", project=project, like=_LIKE))
    ]
    inputs = yield query("inputs_with_files", project=project, like=_LIKE)
    texts += [row["inputs"] for row in inputs]
    return frozenset(digest for text in texts for digest in _DIGESTS.findall(text))


def doom(tx: Tx, ids: Collection[str]) -> Script[frozenset[str]]:
    """Let files go that nobody needs any more: nobody finds them from then on."""
    for row in sorted((yield query("projects_of_files", ids=ids)), key=lambda row: row["project"]):
        yield query("reserve_bytes", project=row["project"], more=0, most=None)
    rows = yield query("doom_files", ids=ids, now=tx.now)
    return frozenset(row["id"] for row in rows)


def bytes_of(project: str) -> Script[int]:
    rows = yield query("sum_of_files", project=project)
    return rows[0]["bytes"] if rows else 0


def held_attempt(session: SessionId, fence: Fence) -> Script[HeldAttempt | None]:
    rows = yield query("held_attempt", run=fence.run, attempt=fence.number, session=session)
    if not rows:
        return None
    [row] = rows
    return HeldAttempt(
        row["project"], JobId(row["job_id"]), row["job_version"], from_json(row["inputs"])
    )


def artifacts(asked: ArtifactQuery) -> Script[list[Artifact]]:
    attempt, step, path = asked.after
    rows = yield query(
        "select_artifacts",
        run=asked.run,
        attempt=asked.attempt,
        step=asked.step,
        path=asked.path,
        after_attempt=attempt,
        after_step=step,
        after_path=path,
        limit=asked.limit,
    )
    return [
        Artifact(
            RunId(row["run_id"]),
            row["attempt"],
            row["step"],
            row["path"],
            row["digest"],
            row["size"],
            instant(row["kept_at"]),
            instant(row["keep_until"]),
        )
        for row in rows
    ]


def forget_artifacts(tx: Tx, limit: int) -> Script[int]:
    """Forget artifacts whose time is over."""
    return len((yield query("forget_artifacts", now=tx.now, limit=limit)))
