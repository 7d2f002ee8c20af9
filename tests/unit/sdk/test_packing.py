"""What clients upload: folders that pack alike, and job files that name what lies beside them."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from rota.sdk.errors import Invalid
from rota.sdk.packing import local_sources, packed, with_uploads


def archive_of(path: Path) -> bytes:
    with packed(path) as file:
        return b"".join(file.body)


def make(folder: Path) -> None:
    (folder / "sub").mkdir(parents=True)
    (folder / "b.sh").write_text("#!/bin/sh\n")
    (folder / "b.sh").chmod(0o755)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "ü").write_text("ü")
    (folder / "link").symlink_to("sub/ü")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")


class TestPacking:
    def test_the_same_content_gives_the_same_bytes(self, tmp_path: Path) -> None:
        make(tmp_path / "one" / "app")
        make(tmp_path / "two" / "app")
        os.utime(tmp_path / "two" / "app" / "a.txt", (1, 1))
        (tmp_path / "two" / "app" / "a.txt").chmod(0o600)

        with packed(tmp_path / "one" / "app") as one, packed(tmp_path / "two" / "app") as two:
            assert (one.digest, one.size, one.name) == (two.digest, two.size, "app.tar.gz")

    def test_it_has_the_files_their_modes_and_inner_links(self, tmp_path: Path) -> None:
        make(tmp_path / "app")

        data = gzip.decompress(archive_of(tmp_path / "app"))

        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            found = {entry.name: oct(entry.mode) for entry in tar}
            owners = {(entry.uid, entry.gid, entry.mtime) for entry in tar}
        assert found == {
            "a.txt": "0o644",
            "b.sh": "0o755",
            "link": "0o644",
            "sub": "0o755",
            "sub/ü": "0o644",
        }
        assert owners == {(0, 0, 0)}

    def test_a_file_goes_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "run.sh").write_bytes(b"echo")

        with packed(tmp_path / "run.sh") as file:
            assert (file.name, file.size, b"".join(file.body)) == ("run.sh", 4, b"echo")

    @pytest.mark.parametrize("target", ["/etc/passwd", "../other", "sub/../../other"])
    def test_a_link_out_of_the_folder_is_refused(self, tmp_path: Path, target: str) -> None:
        make(tmp_path / "app")
        (tmp_path / "app" / "out").symlink_to(target)

        with pytest.raises(Invalid, match="outside of the folder"):
            archive_of(tmp_path / "app")

    def test_what_is_no_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "app").mkdir()
        os.mkfifo(tmp_path / "app" / "pipe")

        with pytest.raises(Invalid, match="no plain file"):
            archive_of(tmp_path / "app")

    def test_what_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="No such file"):
            archive_of(tmp_path / "nothing")


UPLOADS = {"./app": {"digest": "sha256:0", "name": "app.tar.gz"}}

BLOCK = """\
# ü is before it
project: payments
defaults:
  source:
    path: ./app  # beside
jobs:
  - name: a
    source: {path: './app', }
    steps: [{run: "path: ./app"}]
  - {name: b, project: other, source: {"path": "./app"}, steps: [{run: x}]}
  - name: c
    source: {path: /srv/app}
    steps: [{run: x}]
"""


class TestLocalSources:
    def test_all_that_lie_beside_the_file_are_found_with_their_projects(self) -> None:
        found = local_sources(BLOCK)

        assert [(it.path, it.projects) for it in found] == [
            ("./app", ("payments", "other")),
            ("./app", ("payments",)),
            ("./app", ("other",)),
        ]

    def test_uploads_take_their_place_on_the_same_lines(self) -> None:
        text = with_uploads(BLOCK, local_sources(BLOCK), UPLOADS)

        file = yaml.safe_load(text)
        assert file["defaults"]["source"] == {"upload": UPLOADS["./app"]}
        assert [job["source"] for job in file["jobs"]] == [
            {"upload": UPLOADS["./app"]},
            {"upload": UPLOADS["./app"]},
            {"path": "/srv/app"},
        ]
        assert file["jobs"][0]["steps"] == [{"run": "path: ./app"}]
        assert len(text.splitlines()) == len(BLOCK.splitlines())

    def test_json_stays_json(self) -> None:
        text = json.dumps({"jobs": [{"name": "a", "source": {"path": "./app"}}]})

        file = json.loads(with_uploads(text, local_sources(text), UPLOADS))

        assert file["jobs"][0]["source"] == {"upload": UPLOADS["./app"]}

    @pytest.mark.parametrize(
        "text",
        [
            "source: path: [",
            "- source",
            "jobs: source path",
            "jobs: [{source: {path: [a]}}]",
        ],
    )
    def test_what_cannot_be_read_is_left_to_the_server(self, text: str) -> None:
        assert local_sources(text) == []
