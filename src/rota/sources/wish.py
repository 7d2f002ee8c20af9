"""Messages to and from the program that fetches a source: JSON through descriptors."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.domain.addresses import Network
from rota.domain.git import COMMIT
from rota.domain.masking import Masker

SOURCE, INPUT = "source", "input"  # causes of a failure
MOST_REPORTED = 64 * 1024  # bytes


class SourceRefused(Exception):
    """A source cannot be had; the message is for people and says what to do."""


@dataclass(frozen=True, slots=True)
class GitLogin:
    """Login that one host is shown: a user with a password, or the private key of one."""

    user: str = ""
    password: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    origin: str = ""  # scheme, host and port that it is for; nobody else is shown it
    name: str = ""  # of the credential, for messages

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return what must not be printed: the password, also as HTTP carries it."""
        if not self.password:
            return ()
        carried = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return self.password, carried


@dataclass(frozen=True, slots=True)
class GitWish:
    """A repository, and which of its commits."""

    url: str
    mirror: str  # folder that is kept between attempts
    ref: str = ""  # "": what its HEAD names
    commit: str = ""  # that an earlier attempt at the run found; "": `ref` says
    submodules: bool = False
    login: GitLogin | None = None
    known_hosts: str = field(default="", repr=False)  # lines of that file; "": ssh is not allowed
    authorities: str = field(default="", repr=False)  # certificates instead of the system's
    allows_http: bool = False
    opened: tuple[str, ...] = ()  # networks, beside the public ones

    @property
    def mask(self) -> Masker:
        """Return what hides the login in what git and its servers say."""
        return Masker(self.login.secrets if self.login is not None else ())


@dataclass(frozen=True, slots=True)
class FileWish:
    """A file that came through Rota: its bytes are a descriptor."""

    name: str
    descriptor: int
    size: int
    input: str = ""  # the input that it is the value of; "": it is the source

    @property
    def cause(self) -> str:
        return INPUT if self.input else SOURCE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most that a source may be."""

    bytes: int = 2 * 1024**3
    files: int = 200_000


@dataclass(frozen=True, slots=True)
class SourceWish:
    """All that is to be in the folder when the first step begins."""

    folder: str
    bounds: Bounds = Bounds()
    git: GitWish | None = None
    files: tuple[FileWish, ...] = ()

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> SourceWish:
        fields: dict[str, Any] = json.loads(data)
        git, login = fields["git"], None
        if git is not None and git["login"] is not None:
            login = GitLogin(**git["login"])
        if git is not None:
            git = GitWish(**{**git, "login": login, "opened": tuple(git["opened"])})
        return cls(
            folder=fields["folder"],
            bounds=Bounds(**fields["bounds"]),
            git=git,
            files=tuple(FileWish(**each) for each in fields["files"]),
        )


@dataclass(frozen=True, slots=True)
class SourceReport:
    """How it went."""

    error: str = ""  # "": all is there
    cause: str = ""
    commit: str = ""

    def write(self, descriptor: int) -> None:
        os.pwrite(descriptor, json.dumps(asdict(self)).encode(), 0)

    @classmethod
    def read(cls, descriptor: int) -> SourceReport | None:
        """Return what was told; None: nothing that makes sense.

        Hostile data was read by who tells it, and may tell it anything by now.
        """
        data = os.pread(descriptor, MOST_REPORTED, 0)
        try:
            fields = json.loads(data)
            told = cls(**{name: printable(str(fields[name])) for name in _TOLD})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        is_plain = told.cause in ("", SOURCE, INPUT)
        return told if is_plain and (not told.commit or COMMIT.fullmatch(told.commit)) else None


_TOLD = ("error", "cause", "commit")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings of a worker about sources."""

    credentials: Path | None = None  # file of credentials for git
    known_hosts: Path | None = None  # file of the keys of hosts; None: no ssh
    authorities: Path | None = None  # certificates beside the system's; None: those
    networks: tuple[Network, ...] = ()  # private, and allowed nevertheless
    allows_http: bool = False
    limit: int = 2 * 1024**3  # bytes of one source
    files: int = 200_000  # of one source
    timeout: timedelta = timedelta(minutes=10)
    mirrors: int = 10 * 1024**3  # bytes of all mirrors


def say(text: str) -> None:
    """Write a line to the output of the step."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def sized(count: int) -> str:
    """Format bytes as people say them."""
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


def quoted(name: str) -> str:
    """Format a name that others chose, for a message of one line."""
    return f'"{printable(name, 120)}"'


def printable(text: str, most: int = 2_000) -> str:
    """Return text that others chose as a line that can be printed and kept."""
    whole = text[: most + 1].encode("utf-8", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)
    return f"{shown[:most]}{'…' if len(shown) > most else ''}"
