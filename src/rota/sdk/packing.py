"""Files and folders of this machine as they are uploaded, and job files that name them.

A folder is packed so that the same content gives the same bytes: sorted names, no times, no owners.
A job file may say `source: {path: ./app}`: the server cannot see that folder, so the client uploads
it and writes its digest in that place, on the same line: what the server says about other lines
stays true.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shlex
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rota.api.answers import Problem
from rota.sdk.errors import Invalid

LEFT_OUT = frozenset({".git", ".rota", "__pycache__"})  # folders that are not packed
_PIECE = 256 * 1024
_NO_DIGEST = f"sha256:{'0' * 64}"


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of a file, read anew by whoever sends them."""

    path: Path

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while data := file.read(_PIECE):
                yield data


@dataclass(frozen=True, slots=True)
class Packed:
    """File as it is uploaded."""

    name: str  # decides how it is used: `app.tar.gz` is unpacked
    digest: str
    size: int
    body: Body


@contextmanager
def packed(path: Path) -> Iterator[Packed]:
    """Yield a file as it is, or a folder as an archive, which is removed afterwards."""
    try:
        status = path.stat()
    except OSError as error:
        raise Invalid(f"{path} cannot be uploaded: {error.strerror}") from error
    if stat.S_ISREG(status.st_mode):
        yield _packed(_name_of(path), path)
    elif stat.S_ISDIR(status.st_mode):
        with tempfile.TemporaryDirectory(prefix="rota-upload-") as place:
            archive = Path(place) / "archive"
            _pack(path, archive)
            yield _packed(_name_of(path), archive)
    else:
        raise Invalid(f"{path} is neither a file nor a folder")


def _name_of(path: Path) -> str:
    """Return what a file is called once it is uploaded, or the archive of a folder."""
    name = path.resolve().name or "root"
    return f"{name}.tar.gz" if path.is_dir() else name


def _packed(name: str, path: Path) -> Packed:
    found, size = hashlib.sha256(), 0
    try:
        for data in Body(path):
            found.update(data)
            size += len(data)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    return Packed(name, f"sha256:{found.hexdigest()}", size, Body(path))


def _pack(folder: Path, archive: Path) -> None:
    try:
        with (
            archive.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in _below(folder):
                _add(tar, folder, path)
    except OSError as error:
        where = error.filename or folder
        raise Invalid(f"{where} cannot be packed: {error.strerror}") from error


def _below(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, and in those in it, by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: os.fsencode(entry.name)):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in LEFT_OUT:
                yield entry
                yield from _below(entry)
        else:
            yield entry


def _add(tar: tarfile.TarFile, folder: Path, path: Path) -> None:
    name = path.relative_to(folder).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{os.fsencode(path)!r} cannot be packed: its name is not UTF-8") from error
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISDIR(status.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    elif stat.S_ISLNK(status.st_mode):
        entry.type, entry.mode = tarfile.SYMTYPE, 0o644
        entry.linkname = _inner_link(folder, path)
        tar.addfile(entry)
    elif stat.S_ISREG(status.st_mode):
        entry.size = status.st_size
        with path.open("rb") as file:
            _add_file(tar, entry, file, path)
    else:
        raise Invalid(f"{path} cannot be packed: it is no plain file")


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, file: IO[bytes], path: Path) -> None:
    try:
        tar.addfile(entry, file)
    except OSError as error:
        if error.errno is None:  # how tarfile says that there were fewer bytes
            raise Invalid(f"{path} became shorter while it was packed") from error
        raise


def _inner_link(folder: Path, path: Path) -> str:
    target = str(path.readlink())
    inside = (path.parent / target).resolve().is_relative_to(folder.resolve())
    if PurePosixPath(target).is_absolute() or not inside:
        raise Invalid(f"{path} cannot be packed: it is a link to {target}, outside of the folder")
    return target


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Source of jobs that stands in a job file and lies beside it."""

    path: str  # as it is written
    key: tuple[int, int]  # where `path` is written: from and to
    value: tuple[int, int]
    projects: tuple[str | None, ...] = (None,)  # of its jobs; None: the one that is asked for


def local_sources(text: str) -> list[LocalSource]:
    """Find the sources that lie beside a job file, in their order; none if it cannot be read."""
    if "source" not in text or "path" not in text:
        return []
    import yaml  # few files have such sources

    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeError, RecursionError):
        return []  # the server says what is wrong
    found: dict[int, LocalSource] = {}
    for source, projects in _sources(root):
        for key, value in _entries(source):
            local = _local(text, key, value)
            if local is not None:
                earlier = found.get(local.key[0], LocalSource("", (0, 0), (0, 0), ()))
                both = dict.fromkeys((*earlier.projects, *projects))
                found[local.key[0]] = replace(local, projects=tuple(both))
    return [found[at] for at in sorted(found)]


def _sources(root: Any) -> Iterator[tuple[Any, tuple[str | None, ...]]]:
    """Yield each source, with the projects of the jobs that have it."""
    file = dict(_named(root))
    jobs = [dict(_named(job)) for job in getattr(file.get("jobs"), "value", None) or ()]
    default = _text(file.get("project"))
    projects = tuple(dict.fromkeys(_text(job.get("project")) or default for job in jobs))
    for each in (dict(_named(file.get("defaults"))), *jobs):
        if source := each.get("source"):
            own = (_text(each.get("project")) or default,) if each in jobs else projects
            yield source, own


def _text(node: Any) -> str | None:
    return node.value if getattr(node, "id", "") == "scalar" and node.value else None


def _named(node: Any) -> Iterator[tuple[str, Any]]:
    for key, value in _entries(node):
        yield key.value, value


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    value = getattr(node, "value", None)
    if getattr(node, "id", "") == "mapping" and isinstance(value, list):
        yield from ((k, v) for k, v in value if isinstance(k.value, str))


def _local(text: str, key: Any, value: Any) -> LocalSource | None:
    if key.value != "path" or getattr(value, "id", "") != "scalar" or value.style in ("|", ">"):
        return None
    path = value.value
    if not path or path.startswith("/"):
        return None
    places = [(node.start_mark.index, node.end_mark.index) for node in (key, value)]
    written = text[slice(*places[0])].strip("\"'")
    return LocalSource(path, places[0], places[1]) if written == "path" else None


def sources_beside(text: str, folder: Path) -> list[LocalSource]:
    """Find the sources that lie beside a job file in `folder`.

    Raise `Invalid` if one is not there, or not below that folder: whoever applies a file that
    somebody else wrote does not want to send what lies elsewhere.
    """
    sources = local_sources(text)
    problems = [fault for source in sources if (fault := _fault(text, source, folder))]
    if problems:
        raise Invalid("the job file names files that cannot be uploaded", errors=problems)
    return sources


def _fault(text: str, source: LocalSource, folder: Path) -> Problem | None:
    """Return what is wrong with a source; None: nothing."""
    place = folder / source.path
    hint = ""
    if not _is_below(place, folder):
        what = "leads out of the folder of the job file"
        upload = f"rota upload {shlex.quote(str(place))}"
        hint = f"put the job file above it, or say {upload} and write what it prints"
    elif not place.exists():
        what = "is not there: it is beside the job file"
    else:
        return None
    before = text[: source.value[0]]
    return Problem(
        message=f'source path "{source.path}" {what}',
        hint=hint,
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
    )


def with_local_digests(text: str, folder: Path) -> str:
    """Return a job file as it is sent once what lies beside it is uploaded; sends nothing."""
    sources = sources_beside(text, folder)
    uploads = {}
    for source in sources:
        with packed(folder / source.path) as file:
            uploads[source.path] = {"digest": file.digest, "name": file.name}
    return with_uploads(text, sources, uploads)


def _is_below(place: Path, folder: Path) -> bool:
    """Return whether it is below a folder, wherever links lead."""
    try:
        return place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead in a circle
        return False


def as_if_uploaded(text: str, folder: Path) -> str:
    """Return a job file as it will read, but for digests: for whoever looks at the rest of it."""
    sources = local_sources(text)
    uploads = {
        source.path: {"digest": _NO_DIGEST, "name": _name_of(folder / source.path)}
        for source in sources
    }
    return with_uploads(text, sources, uploads)


def with_uploads(
    text: str, sources: Iterable[LocalSource], uploads: Mapping[str, Mapping[str, str]]
) -> str:
    """Return a job file that names uploads in the place of what lies beside it."""
    for source in sorted(sources, key=lambda source: source.key, reverse=True):
        (start, end), (first, last) = source.key, source.value
        key = '"upload"' if text[start] == '"' else "upload"
        value = json.dumps(uploads[source.path])
        text = text[:start] + key + text[end:first] + value + text[last:]
    return text
