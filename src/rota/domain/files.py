"""Files that Rota keeps: digests, the pieces they are stored in, patterns of artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache

from rota.domain.errors import Invalid
from rota.domain.spec import InputType, JobSpec, OutputKept

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PIECE = 4 * 1024 * 1024  # bytes of a file in one blob: nothing is ever whole in memory
PARCEL = 256 * 1024  # most bytes of a file in one message of a worker or to it
UNUSED_FOR = timedelta(hours=24)  # so long a file is kept that nothing refers to
INPUT_KEPT_FOR = timedelta(days=30)  # and an input after it was last given to a run
ABANDONED_AFTER = timedelta(hours=1)  # an upload of which nothing more came
MOST_FILE_BYTES = 1024**4
MOST_ARTIFACT_BYTES = 1024**4
MOST_PATTERNS = 100
MOST_ARTIFACTS = 1_000  # files of a step
MOST_PATH = 1_000  # bytes of the path of an artifact
MOST_LOOKED_AT = 100_000  # entries of a work folder that are compared with patterns
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")

FILES = "files"  # what a worker can that fetches and keeps files, as an offer


def is_archive(name: str) -> bool:
    """Return whether a file of this name is unpacked."""
    return name.lower().endswith(ARCHIVES)


def hex_of(digest: str) -> str:
    """Return the digits of a digest; `Invalid` if it is none."""
    if not DIGEST.fullmatch(digest):
        raise Invalid(
            f"{digest[:80]!r} is no digest of a file",
            code="invalid_digest",
            hint="write sha256: and 64 hexadecimal digits in lower case",
        )
    return digest.removeprefix("sha256:")


def place_of(project: str, digest: str, upload: str) -> str:
    """Return the prefix of the blobs of an upload.

    Each upload has its own: blobs are immutable, and one with wrong bytes must not be in the way of
    the right ones.
    """
    digits = hex_of(digest)
    return f"p/{project}/sha256/{digits[:2]}/{digits[2:]}/{upload}"


def pieces_of(size: int) -> int:
    """Return in how many blobs a file of this size is kept."""
    return -(-size // PIECE)


def path_fault(path: str) -> str:
    """Return what is wrong with the path of an artifact; "": nothing."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > MOST_PATH:
        return f"its path has more than {MOST_PATH:,} bytes"
    if not path or path.startswith("/") or any(p in ("", ".", "..") for p in path.split("/")):
        return "its path does not lead below the work folder"
    if not path.isprintable():
        return "its name has characters that cannot be printed"
    return ""


def pattern_fault(pattern: str) -> str:
    """Return what is wrong with a pattern of artifacts; "": nothing."""
    if pattern.startswith("/"):
        return "must be below the work folder: leave out the first /"
    if any(part == ".." for part in pattern.split("/")):
        return "must not leave the work folder"
    if not pattern.strip("/."):
        return "names the work folder itself: write ** for all in it"
    return ""


def _parts(pattern: str) -> list[str]:
    return [part for part in pattern.split("/") if part not in ("", ".")]


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as an expression for whole paths; a folder stands for all in it.

    Patterns and names come from strangers, and the work must not grow with the number of stars: the
    first place where the part before the next star fits is as good as any other, so each of these
    is looked for once (`(?>…)` never tries another one).
    """
    runs: list[list[str]] = [[]]  # of names, with folders of any number between two of them
    for part in _parts(pattern):
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_name(part))
    *before, last = runs
    expression = "".join(f"{name}/" for name in before[0]) if before else ""
    for run in filter(None, before[1:]):
        expression += f"(?>(?:[^/]+/)*?{''.join(f'{name}/' for name in run)})"
    if before:
        expression += "(?:[^/]+/)*?" if last else ".+"
    return re.compile(f"{expression}{'/'.join(last)}(?:/.+)?", re.DOTALL)


def _name(part: str) -> str:
    """Return a name with stars as an expression for whole names."""
    first, *others = (
        re.escape(text).replace(r"\?", "[^/]") for text in re.sub(r"\*+", "*", part).split("*")
    )
    if not others:
        return first
    *between, last = others
    middle = "".join(f"(?>[^/]*?{text})" for text in between)
    return f"(?>{first}{middle}[^/]*{last}(?![^/]))"


def matching(path: str, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that a path below the work folder matches."""
    return [pattern for pattern in patterns if _compiled(pattern).fullmatch(path)]


def may_hold(folder: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern may match something below a folder."""
    parts = folder.split("/")
    return any(_may_begin(parts, pattern) for pattern in patterns)


def _may_begin(folder: list[str], pattern: str) -> bool:
    wanted = _parts(pattern)
    for at, part in enumerate(folder):
        if at >= len(wanted) or wanted[at] == "**":
            return True
        if not _compiled(wanted[at]).fullmatch(part):
            return False
    return True


def needs_files(spec: JobSpec) -> bool:
    """Return whether a worker of the job fetches or keeps files, or puts all output there."""
    return (
        spec.upload is not None
        or spec.output is OutputKept.BLOBS
        or any(step.artifacts is not None for step in spec.steps)
        or any(each.type is InputType.FILE for each in spec.inputs.values())
    )


def digests_of(inputs: Mapping[str, object] | None) -> dict[str, str]:
    """Return the digests of inputs that are files, by the input's name."""
    if not inputs:
        return {}
    return {
        name: value["digest"]
        for name, value in inputs.items()
        if isinstance(value, Mapping) and isinstance(value.get("digest"), str)
    }
