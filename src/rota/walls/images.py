"""Images of containers: their names, the logins of registries, and when one is pulled.

An image that needed a login is not for everybody who shares the engine: a job may use what the
engine has of such a registry only after that registry let the job's own login have it.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.domain.spec import Container, PullPolicy
from rota.secret_files import is_for, path_in, projects_in, read_secret, refuse_open, tables_in
from rota.walls.engine import ContainerEngine, EngineRefused, Image

_DOCKER_HUB = "docker.io"
_HUB_NAMES = ("index.docker.io", "registry-1.docker.io")
_LATEST = "latest"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


class ImageRefused(Exception):
    """The image of a job cannot be had; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Name of an image, complete: where it is, what it is called, and which one of these."""

    host: str
    path: str
    tag: str = ""  # "" where there is a digest
    digest: str = ""

    def __str__(self) -> str:
        which = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.host}/{self.path}{which}"


def parse_reference(text: str) -> Reference:
    """Parse `debian`, `debian:12`, `registry.example.org:5000/team/app@sha256:…`.

    Raise `ImageRefused` for everything else: also for a bare id, which engines take as well.
    """
    name, _, digest = text.partition("@")
    before, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # that colon is of a port
        before, tag = name, ""
    host, path = _host_and_path(before)
    is_good = _PATH.fullmatch(path) and (before == name or _TAG.fullmatch(tag))
    if not is_good or ("@" in text and not _DIGEST.fullmatch(digest)):
        raise ImageRefused(f'"{text}" is not the name of an image, such as debian:12')
    return Reference(host, path, "" if digest else tag or _LATEST, digest)


def _host_and_path(name: str) -> tuple[str, str]:
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = _DOCKER_HUB, name
    if host in _HUB_NAMES:
        host = _DOCKER_HUB
    if host == _DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return host, path


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Way into a registry, of the worker's settings."""

    name: str
    host: str
    user: str
    password: str = field(default="", repr=False)
    password_file: Path | None = None
    projects: tuple[str, ...] = ()  # whose jobs may use it

    def is_for(self, project: str) -> bool:
        return is_for(project, self.projects)

    def trouble(self) -> str:
        """Return why it is of no use at present; "": nothing is known against it."""
        try:
            self.credentials()
        except ImageRefused as refusal:
            return str(refusal)
        return ""

    def credentials(self) -> dict[str, str]:
        """Return what engines want; a password in a file is read at each use."""
        password = self.password
        if self.password_file is not None:
            try:
                password = read_secret(self.password_file).rstrip("\r\n")
            except ValueError as error:
                raise ImageRefused(
                    f"the password of the registry login {self.name} cannot be read: {error}"
                ) from error
        server = "https://index.docker.io/v1/" if self.host == _DOCKER_HUB else self.host
        return {"username": self.user, "password": password, "serveraddress": server}


def read_logins(path: Path) -> dict[str, RegistryLogin]:
    """Read the file of logins; raise `ValueError` with what is wrong in it.

    One with a password in it must be readable by its owner only.
    """
    tables = tables_in(path, _FIELDS, 'host = "…"')
    logins = {name: _login(where, name, fields) for name, where, fields in tables}
    if any(login.password for login in logins.values()):
        refuse_open(path, "passwords")
    return logins


_FIELDS = ("host", "user", "password", "password_file", "projects")


def _login(where: str, name: str, fields: Mapping[str, Any]) -> RegistryLogin:
    for key in ("host", "user"):
        if not isinstance(fields.get(key), str) or not fields[key]:
            raise ValueError(f"{where} needs {key}")
    if ("password" in fields) == ("password_file" in fields):
        raise ValueError(f"{where} needs password or password_file, one of them")
    return RegistryLogin(
        name=name,
        host=_host_and_path(f"{fields['host']}/image")[0],
        user=fields["user"],
        password=str(fields.get("password", "")),
        password_file=path_in(fields, "password_file"),
        projects=projects_in(where, fields),
    )


class Images:
    """Images of an engine, for the jobs of one worker."""

    def __init__(self, engine: ContainerEngine, logins: Mapping[str, RegistryLogin]) -> None:
        self._engine = engine
        self._logins = logins
        self._hosts = {login.host for login in logins.values()}
        self._granted: set[tuple[str, str, str]] = set()  # login, name and id of what it was given
        self._pulls: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one of each at a time

    async def get(self, wanted: Container, project: str) -> Image:
        """Return the image of a job, pulled if that is its policy, or raise `ImageRefused`.

        `EngineAway` if the engine is.
        """
        reference = parse_reference(wanted.image)
        login = self._login(wanted.registry, reference, project)
        async with self._pulls[str(reference)]:
            if wanted.pull is not PullPolicy.ALWAYS:
                image = await self._find(reference)
                if image is not None and self._is_granted(login, reference, image):
                    return image
                if wanted.pull is PullPolicy.NEVER:
                    raise ImageRefused(self._why_not_there(reference, image))
            return await self._pull(reference, login)

    def _login(self, name: str, reference: Reference, project: str) -> RegistryLogin | None:
        if not name:
            return None
        login = self._logins.get(name)
        if login is None:
            raise ImageRefused(f"the worker has no registry login {name}: see container_registries")
        if not login.is_for(project):
            raise ImageRefused(f"the registry login {name} is not for the project {project}")
        if login.host != reference.host:
            raise ImageRefused(
                f"the registry login {name} is for {login.host}, and {reference} is not there"
            )
        return login

    async def _find(self, reference: Reference) -> Image | None:
        """Return what the engine has of that very name: it would take a part of an id for one."""
        image = await self._engine.image(str(reference))
        if image is None or not any(_is(name, reference) for name in image.names):
            return None
        return image

    def _is_granted(self, login: RegistryLogin | None, reference: Reference, image: Image) -> bool:
        if reference.host not in self._hosts:
            return True
        name = "" if login is None else login.name
        return (name, str(reference), image.id) in self._granted

    def _why_not_there(self, reference: Reference, image: Image | None) -> str:
        if image is None:
            return f"the image {reference} is not there, and pull is never"
        return (
            f"the image {reference} is there, but {reference.host} needs a login, and pull is"
            " never: with if_missing the registry is asked once whether this job may have it"
        )

    async def _pull(self, reference: Reference, login: RegistryLogin | None) -> Image:
        try:
            credentials = None if login is None else login.credentials()
            await self._engine.pull(str(reference), credentials)
            image = await self._find(reference)
        except EngineRefused as error:
            raise ImageRefused(_why_not_pulled(reference, login, str(error))) from error
        if image is None:
            reason = "the engine stopped before it had all of it"
            raise ImageRefused(f"{reference} could not be pulled: {reason}")
        name = "" if login is None else login.name
        self._granted.add((name, str(reference), image.id))
        return image


_REFUSALS = ("unauthorized", "denied", "authentication required", "no basic auth", "forbidden")


def _why_not_pulled(reference: Reference, login: RegistryLogin | None, reason: str) -> str:
    message = f"{reference} could not be pulled: {reason}"
    if not any(word in reason.lower() for word in _REFUSALS):
        return message
    if login is None:
        return f"{message} (it may need a login: registry: NAME)"
    return f"{message} (with the registry login {login.name}, user {login.user})"


def _is(name: str, reference: Reference) -> bool:
    try:
        return parse_reference(name) == reference
    except ImageRefused:
        return False
