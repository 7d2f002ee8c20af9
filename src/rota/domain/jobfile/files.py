"""Fields about files: where the code of a job comes from, inputs that are files, artifacts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import quoted, shown
from rota.domain.files import DIGEST, MOST_ARTIFACT_BYTES, MOST_PATTERNS, is_archive, pattern_fault
from rota.domain.jobfile.formats import REF, with_steps
from rota.domain.jobfile.kinds import (
    INVALID,
    Duration,
    Flag,
    Refused,
    Scalar,
    Schema,
    Size,
    Text,
)
from rota.domain.jobfile.sections import PATH, Field, InputValue, ListOf, Section
from rota.domain.jobfile.slips import ARTIFACTS_ADVICE, GIT_ADVICE, SOURCE_ADVICE, UPLOAD_ADVICE
from rota.domain.jobfile.text import MAX_NAME, At
from rota.domain.quantities import format_duration, format_size, parse_duration, parse_size
from rota.domain.spec import (
    DEFAULT_ARTIFACT_BYTES,
    DEFAULT_ARTIFACT_KEEP,
    Artifacts,
    Git,
    JobType,
    Upload,
)

Document = Mapping[str, Any]

FILE_NAME = Text(
    "the name of a file, without folders",
    200,
    pattern=r"(?!\.{1,2}$)[^/\x00-\x1f\x7f]+",
)
FILE_DIGEST = Text("sha256: and 64 hexadecimal digits", 71, pattern=DIGEST.pattern)


@dataclass(frozen=True, slots=True)
class _SourcePath(Text):
    """Folder on the worker. One beside the job file is packed before the file is read here."""

    words: str = PATH.words
    max_length: int = PATH.max_length
    pattern: str = PATH.pattern

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str) and value and not value.startswith("/"):
            raise Refused(
                f"{at.name} {quoted(value)} is beside the job file, where only the command can see",
                f"apply the file with rota apply, or say rota upload {shlex.quote(value)} and"
                " write what it prints",
            )
        return Text.accept(self, value, at)  # super() does not work with slots


GIT = Section(
    "git",
    (
        Field(
            "url",
            Text("the address of a Git repository", 2_000, pattern=r"[^\x00-\x20\x7f]+"),
            "The repository.",
            examples=("https://git.example.org/team/app.git",),
            required=True,
        ),
        Field(
            "ref",
            REF,
            "The branch, tag or commit; what the repository's HEAD names, unless given.",
            examples=("main",),
        ),
        Field("submodules", Flag(), "Whether its submodules are fetched as well.", False),
        Field(
            "credential",
            Text(
                "the name of a credential",
                MAX_NAME,
                pattern=rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}",
            ),
            "The name of a login in the worker's settings.",
        ),
    ),
    shorthand="url",
    advice=GIT_ADVICE,
)

UPLOAD = Section(
    "upload",
    (
        Field(
            "digest",
            FILE_DIGEST,
            "What `rota upload` printed.",
            examples=("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",),
            required=True,
        ),
        Field(
            "name",
            FILE_NAME,
            "What the file is called, which says how it is used: `.tar`, `.tar.gz`, `.tgz`, "
            "`.tar.xz` and `.zip` are unpacked, all else is one file that can be executed; "
            "without a name, its first bytes tell.",
            examples=("app.tar.gz",),
        ),
    ),
    shorthand="digest",
    advice=UPLOAD_ADVICE,
)

SOURCE = Section(
    "source",
    (
        Field(
            "path",
            _SourcePath(),
            "The folder on the worker that the job runs in, instead of a fresh one; a relative one "
            "is below the folder of the job file: `rota apply` packs and uploads it.",
            examples=("/srv/reports",),
        ),
        Field("git", GIT, "A Git repository to fetch; its address alone is enough."),
        Field(
            "upload", UPLOAD, "An uploaded script, binary or archive; its digest alone is enough."
        ),
    ),
    advice=SOURCE_ADVICE,
)


@dataclass(frozen=True, slots=True)
class _Pattern(Text):
    """Pattern of paths below the work folder."""

    words: str = "a path below the work folder, where * stands for anything"
    max_length: int = 500

    def accept(self, value: object, at: At) -> object:
        text = Text.accept(self, value, at)
        if isinstance(text, str) and (fault := pattern_fault(text)):
            raise Refused(f"{at.name} {quoted(text)} {fault}")
        return text


ARTIFACTS = Section(
    "artifacts",
    (
        Field(
            "paths",
            ListOf(_Pattern(), most=MOST_PATTERNS, least=1, instead="write [PATTERN]"),
            "Files below the work folder: `*` stands for anything but `/`, `**` for any folders, a "
            "folder for all in it.",
            examples=(["report.json", "dist/**"],),
            required=True,
        ),
        Field(
            "keep",
            Duration(),
            "How long they are kept.",
            format_duration(DEFAULT_ARTIFACT_KEEP),
        ),
        Field(
            "max",
            Size(1, MOST_ARTIFACT_BYTES),
            "How much of a step's files is kept, all together.",
            format_size(DEFAULT_ARTIFACT_BYTES),
        ),
    ),
    shorthand="paths",
    advice=ARTIFACTS_ADVICE,
)


@dataclass(frozen=True, slots=True)
class FileValue(Scalar):
    """Value of an input that is a file: what it is called, and its digest."""

    words: str = "a file: {file: NAME, digest: sha256:…}"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, Mapping):
            hint = "in a command write NAME=@FILE; else upload it, and give its digest"
            raise Refused(f"{at.name} must be {self.words}, not {shown(value)}", hint)
        for name in value.keys() - {"file", "digest", "size"}:
            raise Refused(f"{at.name} has no {quoted(str(name))}; it is {self.words}")
        name, digest = value.get("file"), value.get("digest")
        if FILE_NAME.check(name, at.child("file")) is INVALID:
            return INVALID
        if FILE_DIGEST.check(digest, at.child("digest")) is INVALID:
            return INVALID
        size = value.get("size", 0)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise Refused(f"{at.name}.size must be a number of bytes")
        return {"file": name, "digest": digest, "size": size}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {
                "file": FILE_NAME.schema(),
                "digest": FILE_DIGEST.schema(),
                "size": {"type": "integer", "minimum": 0},
            },
            "required": ["file", "digest"],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class AnyInputValue(Scalar):
    """Value of an input, perhaps a file; whether it fits the input's type is a rule of its own."""

    words: str = "text, a number, true or false, or a file"

    def accept(self, value: object, at: At) -> object:
        kind = FileValue() if isinstance(value, Mapping) else InputValue()
        return kind.accept(value, at)

    def schema(self) -> Schema:
        return {"anyOf": [InputValue().schema(), FileValue().schema()]}


def build_source(document: Document) -> dict[str, Any]:
    """Return the fields of the spec that say where the code comes from."""
    source = document.get("source", {})
    git, upload = source.get("git"), source.get("upload")
    return {
        "path": source.get("path", ""),
        "git": None if git is None else Git(**git),
        "upload": None if upload is None else Upload(**upload),
    }


def build_artifacts(document: Document) -> Artifacts:
    return Artifacts(
        tuple(document["paths"]),
        parse_duration(document["keep"]) if "keep" in document else DEFAULT_ARTIFACT_KEEP,
        parse_size(document["max"]) if "max" in document else DEFAULT_ARTIFACT_BYTES,
    )


def runs_itself(document: Document) -> bool:
    """Return whether the job's code is one uploaded file, which needs no steps."""
    if document.get("type", JobType.SHELL) != JobType.SHELL:
        return False
    upload = document.get("source", {}).get("upload", {})
    return "name" in upload and not is_archive(upload["name"])


_BY_EXTENSION = {".sh": "sh", ".py": "python3", ".js": "node"}


def step_of_upload(name: str) -> dict[str, Any]:
    """Return the step that runs an uploaded file: by its first line, else by its extension."""
    file = shlex.quote(f"./{name}")
    program = next((it for end, it in _BY_EXTENSION.items() if name.endswith(end)), "")
    script = f"exec {file}\n"
    if program:
        script = (
            f"if [ \"$(head -c 2 {file})\" = '#!' ]; then exec {file}; fi\nexec {program} {file}\n"
        )
    return {"name": name, "run": script}


def expanded(document: Document) -> dict[str, Any]:
    """Return a job with the steps that its source brings along."""
    found = with_steps(document)
    if "steps" not in found and runs_itself(found):
        found["steps"] = [step_of_upload(found["source"]["upload"]["name"])]
    return found


def check_source(document: Document, at: At) -> None:
    """Report a source that says more than one thing, or what its job cannot use."""
    source = document.get("source")
    if not isinstance(source, Mapping):
        return
    at = at.child("source")
    said = [name for name in ("path", "git", "upload") if name in source]
    for name in said[1:]:
        message = f"the code comes from one place: {quoted(said[0])} or {quoted(name)}"
        at.child(name).refuse_key(message)
    is_python = document.get("type") == JobType.PYTHON
    for name in said if is_python else ():
        if name != "path":
            message = f"a function runs in its worker's own process: it has no {quoted(name)}"
            at.child(name).refuse_key(message)


def is_file(value: object) -> bool:
    """Return whether the value of an input is a file."""
    return isinstance(value, Mapping) and "digest" in value and "file" in value
