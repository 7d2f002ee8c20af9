"""`rota upload`, what lies beside job files, `--input NAME=@FILE`, and artifacts."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", ["..", "../beside.sh", "app/../../beside.sh", "way", "way/a.sh"])
def test_what_lies_elsewhere_is_not_uploaded(
    rota: Console, server: Server, tmp_path: Path, path: str
) -> None:
    """A job file of somebody else says what is read: nothing that did not come with it."""
    folder, beside = tmp_path / "jobs", tmp_path / "beside.sh"
    (folder / "app").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for file in (beside, tmp_path / "elsewhere" / "a.sh"):
        file.write_bytes(b"secret")
    (folder / "way").symlink_to("../elsewhere")
    (folder / "jobs.yaml").write_text(JOB.replace("./hello.sh", path))

    for command in (("apply",), ("apply", "--plan"), ("validate",)):
        ended = rota(*command, "jobs/jobs.yaml")

        assert ended.code == 6
        assert f'jobs/jobs.yaml:3:20  source path "{path}" leads out of the folder' in ended.err
        assert f"rota upload jobs/{path}" in ended.err
    assert server.do(server.engine.store.bytes_of_files("default")) == 0


def test_what_a_link_names_below_the_file_is_uploaded(
    rota: Console, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "hello.sh").write_bytes(b"echo hello")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "hello.sh").symlink_to("../jobs/../jobs/real.sh")
    (tmp_path / "jobs" / "real.sh").write_bytes(b"echo hello")
    (tmp_path / "here").symlink_to("jobs")
    (tmp_path / "jobs" / "jobs.yaml").write_text(JOB)

    assert rota("apply", "here/jobs.yaml").code == 0


CART = """\
  - {name: unpacked, source: {path: ./app}, inputs: {x: {}}, steps: [{run: ./a.sh}]}
carts:
  - {name: fleet, job: unpacked, items_from: fleet.csv}
"""


def test_code_beside_a_file_goes_with_items_beside_it(rota: Console, server: Server) -> None:
    Path("app").mkdir()
    Path("app/a.sh").write_bytes(b"echo")
    Path("hello.sh").write_bytes(b"echo hello")
    Path("fleet.csv").write_text("key,x\na,1\nb,2\n")
    Path("jobs.yaml").write_text(JOB + CART)

    validated = rota("validate", "jobs.yaml")
    applied = rota("apply", "jobs.yaml")
    submitted = rota("cart", "submit", "jobs.yaml", "--yes")

    assert validated.out == "jobs.yaml: valid, 3 jobs, 1 cart\n"
    assert (applied.code, submitted.code) == (0, 0), applied.err + submitted.err
    assert "2: 2 pending" in rota("cart", "show", "fleet").out


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
