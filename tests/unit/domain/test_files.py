"""Names, patterns and demands of files."""

from __future__ import annotations

import pytest

from rota.domain.errors import Invalid
from rota.domain.files import (
    PIECE,
    digests_of,
    hex_of,
    is_archive,
    matching,
    may_hold,
    needs_files,
    path_fault,
    pattern_fault,
    pieces_of,
    place_of,
)
from rota.domain.spec import (
    Artifacts,
    Input,
    InputType,
    Isolation,
    JobSpec,
    OutputKept,
    Step,
    Upload,
)
from rota.domain.walls import demanded, walls_of, words_of

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize("text", ["", "sha256:", "ab" * 32, f"sha256:{'AB' * 32}", f"{DIGEST}\n"])
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        hex_of(text)


def test_uploads_have_places_of_their_own() -> None:
    assert place_of("shop", DIGEST, "f_1") == f"p/shop/sha256/ab/{'ab' * 31}/f_1"


@pytest.mark.parametrize(("size", "pieces"), [(0, 0), (1, 1), (PIECE, 1), (PIECE + 1, 2)])
def test_a_file_has_so_many_pieces(size: int, pieces: int) -> None:
    assert pieces_of(size) == pieces


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../a", "a/../../b", ".", "./", "", "/"])
def test_patterns_stay_below_the_folder(pattern: str) -> None:
    assert pattern_fault(pattern)


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "../a", "a/..", "./a", "a/", "a\nb", "\udcff", "a" * 1_001]
)
def test_paths_stay_below_the_folder_and_can_be_printed(path: str) -> None:
    assert path_fault(path)


def test_a_star_is_no_slash_and_a_dot_no_star() -> None:
    assert matching("a/b.txt", ["*.txt", "a/*", "a/bxtxt", "**", "a/b.txt/c"]) == ["a/*", "**"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/a*/**/b", "x/ab/a/c/b", True),
        ("**/a*/**/b", "x/b/a", False),
        ("*a*b*", "xbab", True),
        ("*a*b", "ab/c", True),  # a folder, with all in it
        ("a**b", "a-b", True),
        ("**/**/a", "a", True),
        ("a/**/**", "a", False),
        ("**/?a*", "a/a/ba", True),
    ],
)
def test_stars_stand_for_anything(pattern: str, path: str, matches: bool) -> None:
    assert bool(matching(path, [pattern])) is matches


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 100 + "c", "a" * 250),
        ("**/" * 100 + "b", "a/" * 400 + "a"),
        ("**/a/" * 100 + "b", "a/" * 400 + "a"),
        ("**/*a*a*a/" * 40 + "b", "/".join(["a" * 100] * 80)),
    ],
)
def test_however_many_stars_it_takes_no_time(pattern: str, path: str) -> None:
    """Python's `re` would try more ways than there are atoms, and no other thread would run."""
    assert not matching(path, [pattern])
    assert may_hold(path, [pattern]) is pattern.startswith("**")


def test_folders_are_looked_into_only_where_a_pattern_leads() -> None:
    assert may_hold("dist", ["dist/**"])
    assert may_hold("dist/deep", ["dist"])
    assert may_hold("a/b", ["a/*/c.txt"])
    assert may_hold("anything", ["**/c.txt"])
    assert not may_hold("node_modules", ["dist/**", "*.txt"])
    assert not may_hold("a/b", ["a/c/d.txt"])


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "A.TGZ", "a.tar.xz", "a.zip"])
def test_archives_are_known_by_their_names(name: str) -> None:
    assert is_archive(name)
    assert not is_archive(f"{name}.sh")


def test_digests_of_inputs_are_those_of_files() -> None:
    given = {"a": "sha256:0", "b": 3, "c": {"file": "x", "digest": DIGEST}}

    assert digests_of(given) == {"c": DIGEST}
    assert digests_of(None) == {}


STEP = Step("a", "true")


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec("a", steps=(STEP,), upload=Upload(DIGEST)),
        JobSpec("a", steps=(Step("a", "true", artifacts=Artifacts(("a",))),)),
        JobSpec("a", steps=(STEP,), inputs={"x": Input(InputType.FILE)}),
        JobSpec("a", steps=(STEP,), output=OutputKept.BLOBS),
    ],
    ids=["an upload", "artifacts", "a file as an input", "output in the blob store"],
)
def test_what_older_workers_cannot_do_is_asked_of_the_worker(spec: JobSpec) -> None:
    assert needs_files(spec)
    [demand] = demanded(walls_of(spec))
    assert (demand, words_of(demand)) == ("capability/files", "transfer of files")


def test_a_plain_job_asks_for_nothing() -> None:
    spec = JobSpec("a", steps=(STEP,), inputs={"x": Input()}, isolation=Isolation.PROCESS)

    assert walls_of(spec) is None
