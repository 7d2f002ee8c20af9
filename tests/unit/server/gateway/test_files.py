"""Uploads and artifacts over REST."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.keys import Quota
from rota.operations.worker_files import WorkerFiles
from rota.ports.files import BlobPiece
from rota.ports.work import Offer
from testkit.identity import make_project
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio

FILES = (Offer("capability", "files"),)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def put(
    served: Served,
    data: bytes | AsyncIterator[bytes],
    digest: str,
    role: Role = Role.OPERATOR,
) -> httpx.Response:
    client = await served.client(role)
    return await client.put(f"/api/v1/uploads/{digest}", content=data)


async def left(served: Served) -> tuple[int, list[str]]:
    keys = [key async for key in served.engine.blobs.list("p")]
    return await served.engine.store.bytes_of_files("default"), keys


class TestUploads:
    async def test_an_upload_is_found_by_its_digest(self, served: Served) -> None:
        sent = await put(served, b"abc", digest_of(b"abc"))
        again = await put(served, b"abc", digest_of(b"abc"))

        found = await served.get(f"uploads/{digest_of(b'abc')}", Role.OPERATOR)

        assert [answer.status_code for answer in (sent, again, found)] == [200, 200, 200]
        assert found.json() == {"digest": digest_of(b"abc"), "size": 3}
        assert (await left(served))[0] == 3

    async def test_a_wrong_digest_leaves_nothing(self, served: Served) -> None:
        answer = await put(served, b"abc", digest_of(b"abd"))

        assert (answer.status_code, answer.json()["code"]) == (422, "wrong_digest")
        assert await left(served) == (0, [])

    @pytest.mark.parametrize("digest", ["abc", "sha256:ABC", f"sha256:{'g' * 64}", "md5:1"])
    async def test_what_is_no_digest_is_refused(self, served: Served, digest: str) -> None:
        answer = await put(served, b"abc", digest)

        assert answer.json()["code"] == "invalid_digest"

    async def test_beyond_the_quota_nothing_is_kept(self, served: Served) -> None:
        await served.engine.store.save_declarations([Quota("default", file_bytes=2)], actor="ann")

        async def unsized() -> AsyncIterator[bytes]:
            yield b"abc"

        for data in (b"abc", unsized()):
            answer = await put(served, data, digest_of(b"abc"))
            assert (answer.status_code, answer.json()["code"]) == (409, "file_quota")

        assert await left(served) == (0, [])
        quota = (await served.get("quota")).json()
        assert (quota["file_bytes"], quota["file_bytes_now"]) == (2, 0)

    async def test_a_file_of_another_project_is_the_same_as_none(self, served: Served) -> None:
        await make_project(served.engine.store, "third")
        await put(served, b"abc", digest_of(b"abc"))

        foreign = await served.get(f"uploads/{digest_of(b'abc')}", params={"project": "third"})
        missing = await served.get(f"uploads/{digest_of(b'x')}", params={"project": "third"})

        answers = [
            {**answer.json(), "trace_id": "", "detail": answer.json()["detail"][-16:]}
            for answer in (foreign, missing)
        ]
        assert foreign.status_code == missing.status_code == 404
        assert answers[0] == answers[1]

    async def test_a_viewer_neither_uploads_nor_asks(self, served: Served) -> None:
        sent = await put(served, b"abc", digest_of(b"abc"), Role.VIEWER)
        asked = await served.get(f"uploads/{digest_of(b'abc')}", Role.VIEWER)

        assert (sent.status_code, asked.status_code) == (403, 403)

    async def test_it_may_be_longer_than_other_bodies(self, served: Served) -> None:
        data = bytes(served.app.state.settings.max_body_bytes + 1)

        assert (await put(served, data, digest_of(data))).status_code == 200


class TestJobs:
    async def test_an_upload_that_is_not_there_is_told_at_its_place(self, served: Served) -> None:
        new = job(source={"upload": digest_of(b"code")})

        refused = await served.post("jobs:apply", content=job_file(new), headers=YAML)

        assert refused.status_code == 422
        [problem] = refused.json()["errors"]
        assert problem["message"] == f"project default has no file {digest_of(b'code')}"
        await put(served, b"code", digest_of(b"code"))
        await served.apply(new)

    async def test_a_relative_path_is_refused_with_what_to_do(self, served: Served) -> None:
        new = job(source={"path": "./app"})

        refused = await served.post("jobs:apply", content=job_file(new), headers=YAML)

        assert refused.status_code == 422
        [problem] = refused.json()["errors"]
        assert "rota upload ./app" in problem["hint"]

    async def test_inputs_name_files_that_are_there(self, served: Served) -> None:
        await served.apply(job(inputs={"data": {"type": "file"}}))
        given = {"data": {"file": "d.csv", "digest": digest_of(b"1,2")}}

        refused = await served.post("jobs/tidy/runs", json={"inputs": given})
        await put(served, b"1,2", digest_of(b"1,2"))
        run = await served.trigger(inputs=given)

        assert (refused.status_code, refused.json()["code"]) == (422, "file_not_found")
        assert run["inputs"]["data"] == {**given["data"], "size": 0}

    @pytest.mark.parametrize(
        "value",
        ["text", 3, {"file": "a"}, {"digest": "sha256:0"}, {"file": "../a", "digest": "sha256:0"}],
    )
    async def test_another_value_is_refused(self, served: Served, value: object) -> None:
        await served.apply(job(inputs={"data": {"type": "file"}}))

        refused = await served.post("jobs/tidy/runs", json={"inputs": {"data": value}})

        assert refused.status_code == 422

    async def test_a_worker_of_an_older_release_gets_no_such_job(self, served: Served) -> None:
        await served.apply(job(steps=[{"run": "true", "artifacts": ["a"]}]))
        run = await served.trigger()
        old = await served.worker("old", offers=(Offer("type", "shell"),))
        assert await old.claim() == []

        why = (await served.get(f"runs/{run['id']}/why")).text
        new = await served.worker("new", offers=FILES)

        assert "worker old has no transfer of files" in why
        assert len(await new.claim()) == 1


class TestArtifacts:
    async def kept(self, served: Served, **files: bytes) -> str:
        await served.apply(job(steps=[{"run": "true", "artifacts": ["*", "dist/**"]}]))
        run = await served.trigger()
        worker = await served.worker(offers=FILES)
        [work] = await worker.claim()
        desk = WorkerFiles(served.engine)
        for path, data in files.items():
            await desk.write(
                worker.session,
                BlobPiece(work.run, work.number, digest_of(data), 0, data, len(data), path, 0),
            )
        return str(run["id"])

    async def test_they_are_listed_and_downloaded(self, served: Served) -> None:
        run = await self.kept(served, **{"dist/über.txt": b"abc", "empty": b""})

        listed = (await served.get(f"runs/{run}/artifacts", Role.VIEWER)).json()["items"]
        got = await served.get(f"runs/{run}/artifacts/dist/%C3%BCber.txt", Role.VIEWER)
        empty = await served.get(f"runs/{run}/artifacts/empty")

        assert [(it["path"], it["size"], it["attempt"]) for it in listed] == [
            ("dist/über.txt", 3, 1),
            ("empty", 0, 1),
        ]
        assert (got.content, empty.content) == (b"abc", b"")
        assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%BCber.txt"
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["x-content-type-options"] == "nosniff"

    async def test_they_come_in_pages(self, served: Served) -> None:
        run = await self.kept(served, **{f"a b{n}": b"%d" % n for n in range(5)})
        paths: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = (
                await served.get(f"runs/{run}/artifacts", params={"limit": "2", **cursor})
            ).json()
            paths += [it["path"] for it in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}

        assert paths == [f"a b{n}" for n in range(5)]

    async def test_what_was_not_kept_is_not_found(self, served: Served) -> None:
        run = await self.kept(served, a=b"abc")

        for path in ("b", "../a", "%2e%2e/a", "a/b"):
            answer = await served.get(f"runs/{run}/artifacts/{path}")
            assert answer.status_code == 404, path

    async def test_nobody_gets_them_through_another_project(self, served: Served) -> None:
        await make_project(served.engine.store, "third")
        run = await self.kept(served, a=b"abc")

        listed = await served.get(f"runs/{run}/artifacts", params={"project": "third"})
        got = await served.get(f"runs/{run}/artifacts/a", params={"project": "third"})

        assert (listed.status_code, got.status_code) == (404, 404)
