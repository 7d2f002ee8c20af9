"""`rota upload`, what lies beside job files, `--input NAME=@FILE`, and artifacts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rota.operations.worker_files import WorkerFiles
from rota.ports.files import BlobPiece
from rota.ports.work import Offer
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

JOB = """\
jobs:
  - name: hello
    source: {path: ./hello.sh}
  - name: read
    inputs: {data: {type: file}, note: {default: ""}}
    steps: [{run: "true"}]
"""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_upload_prints_the_digest_and_how_to_name_it(rota: Console, server: Server) -> None:
    Path("a.sh").write_bytes(b"echo")

    ended = rota("upload", "a.sh")

    assert ended.lines == [digest_of(b"echo")]
    assert f"source: {{upload: {{digest: {digest_of(b'echo')}, name: a.sh}}}}" in ended.err


def test_apply_uploads_what_lies_beside_the_file(
    rota: Console, server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "jobs.yaml").write_text(JOB)
    (folder / "hello.sh").write_bytes(b"echo hello")

    planned = rota("apply", "jobs/jobs.yaml", "--plan")
    applied = rota("apply", "jobs/jobs.yaml")
    again = rota("apply", "jobs/jobs.yaml", "--plan")

    assert (planned.code, applied.code, again.code) == (20, 0, 0)
    document = rota("job", "show", "hello", "--json").json["document"]
    upload = {"digest": digest_of(b"echo hello"), "name": "hello.sh"}
    assert document["source"] == {"upload": upload}
    assert "./hello.sh" in document["steps"][0]["run"]


def test_a_file_that_is_not_there_is_told(rota: Console, server: Server) -> None:
    Path("jobs.yaml").write_text(JOB)

    for command in ("apply", "validate"):
        ended = rota(command, "jobs.yaml")

        assert ended.code == 6
        assert 'jobs.yaml:3:20  source path "./hello.sh" is not there' in ended.err


def test_validate_needs_no_server_for_it(rota: Console) -> None:
    Path("jobs.yaml").write_text(JOB)
    Path("hello.sh").write_bytes(b"echo hello")

    assert rota("validate", "jobs.yaml").out == "jobs.yaml: valid, 2 jobs\n"


def test_an_input_that_is_a_file_is_uploaded_and_others_keep_their_text(
    rota: Console, server: Server
) -> None:
    server.define(JOB.replace("{path: ./hello.sh}", "{path: /srv}\n    steps: [{run: x}]"))
    Path("d.csv").write_bytes(b"1,2")

    run = rota("trigger", "read", "-i", "data=@d.csv", "-i", "note=@home", "-o", "name").lines[0]
    refused = rota("trigger", "read", "-i", "data=d.csv", "-i", "note=@home")

    inputs = rota("run", "show", run, "--json").json["inputs"]
    assert inputs == {
        "data": {"file": "d.csv", "digest": digest_of(b"1,2"), "size": 3},
        "note": "@home",
    }
    assert 'input "data" is a file, not "d.csv"' in refused.err


def kept(rota: Console, server: Server, **files: bytes) -> str:
    """A run that left these files behind."""
    server.define("jobs: [{name: make, steps: [{run: x, artifacts: ['**']}]}]")
    run = rota("trigger", "make", "-o", "name").lines[0]
    work = server.claim(offers=(Offer("capability", "files"),))

    async def keep() -> None:
        desk = WorkerFiles(server.engine)
        for path, data in files.items():
            await desk.write(
                server.session,
                BlobPiece(work.run, work.number, digest_of(data), 0, data, len(data), path, 0),
            )

    server.do(keep())
    return run


def test_artifacts_are_listed_and_downloaded(rota: Console, server: Server) -> None:
    run = kept(rota, server, **{"dist/a.txt": b"abc", "log": b"l"})

    listed = rota("run", "artifacts", "make", "-o", "name")
    ended = rota("run", "download", run, "--to", "out")
    one = rota("run", "download", run, "dist", "--to", "some")
    printed = rota("run", "download", run, "log", "--stdout")

    assert listed.lines == ["dist/a.txt", "log"]
    assert (ended.code, one.code, printed.out) == (0, 0, "l")
    assert Path("out/dist/a.txt").read_bytes() == b"abc"
    assert sorted(str(path) for path in Path("some").rglob("*") if path.is_file()) == [
        "some/dist/a.txt"
    ]
    assert "2 files, 4 bytes, to out" in ended.err


def test_download_replaces_nothing_unless_told_to(rota: Console, server: Server) -> None:
    run = kept(rota, server, log=b"new")
    Path("log").write_text("old")

    refused = rota("run", "download", run)
    assert (refused.code, Path("log").read_text()) == (5, "old")

    assert rota("run", "download", run, "--overwrite").code == 0
    assert Path("log").read_text() == "new"


def test_what_is_not_there_is_told(rota: Console, server: Server) -> None:
    run = kept(rota, server, log=b"new")

    ended = rota("run", "download", run, "nothing")

    assert ended.code == 3
    assert f"rota run artifacts {run}" in ended.err
