"""Addresses of git repositories, and what runs look for in a folder that is empty."""

from __future__ import annotations

import re

from rota.domain.addresses import Target, parse_target
from rota.domain.errors import Invalid, quoted
from rota.domain.spec import InputType, Isolation, JobSpec, Step

# What a worker can that brings sources into work folders, as offers. Where a job asks for a wall,
# that is done behind one.
GIT = "git"
WALLED_GIT, WALLED_FILES = "git_behind_walls", "files_behind_walls"
# The first that connects to the addresses which were checked (http.curloptResolve): older ones look
# the name up again, and whoever answers may name another place by then.
OLDEST_GIT = (2, 37)
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SAFE_SCHEMES = ("https", "ssh")
SCHEMES = (*SAFE_SCHEMES, "http")  # the last one only where a worker's settings allow it
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SCP = re.compile(rf"(?:(?P<user>{_USER})@)?(?P<host>[^/:@\[\]]+):(?P<path>[^:].*)", re.ASCII)
_SITE = re.compile(r"(?P<site>[a-z]+://[^/]+)(?P<path>/.*)?")


def parse_repository(url: str, *, allows_http: bool = False) -> Target:
    """Parse the address of a repository; raise `Invalid`."""
    try:
        return parse_target(normal_url(url), SCHEMES if allows_http else SAFE_SCHEMES)
    except Invalid as error:
        if allows_http or not url.lower().startswith("http://"):
            raise
        hint = "an admin of the machine may allow http: git_http = true"
        raise Invalid(f"{error}: {hint}", code=error.code) from error


def normal_url(url: str) -> str:
    """Return `git@host:path` as the URL that it stands for."""
    match = None if "://" in url else _SCP.fullmatch(url)
    if match is None:
        return url
    user = f"{match['user']}@" if match["user"] else ""
    return f"ssh://{user}{match['host']}/{match['path'].lstrip('/')}"


def submodule_url(base: str, url: str) -> str:
    """Return where a submodule is: `../lib.git` is beside its repository. Raise `Invalid`."""
    if not url.startswith(("./", "../")):
        return url
    match = _SITE.fullmatch(normal_url(base))
    if match is None:
        raise Invalid(f"{quoted(url)} is relative to {base}, which has no folders")
    parts = [part for part in (match["path"] or "").split("/") if part]
    for part in url.split("/"):
        if part == "..":
            if not parts:
                raise Invalid(f"{quoted(url)} is relative, and leads beyond {base}")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return f"{match['site']}/{'/'.join(parts)}"


def refs_named(ref: str) -> list[str]:
    """Return what a ref may be in a mirror, the likeliest first."""
    if not ref:
        return ["refs/rota/head"]
    return [ref] if ref.startswith("refs/") else [f"refs/heads/{ref}", f"refs/tags/{ref}"]


def fetches(spec: JobSpec) -> bool:
    """Return whether something is brought into the work folder before the first step."""
    files = any(each.type is InputType.FILE for each in spec.inputs.values())
    return spec.git is not None or spec.upload is not None or files


def step_numbered(spec: JobSpec, number: int) -> Step | None:
    """Return the step of a job that has a number in its attempts; None: it is none of its own."""
    at = number - int(fetches(spec))
    return spec.steps[at] if 0 <= at < len(spec.steps) else None


def capabilities_of(spec: JobSpec) -> tuple[str, ...]:
    """Return what a worker must be able to do before the first step of a job."""
    walls = {spec.isolation, *(step.isolation for step in spec.steps)} - {None}
    is_walled = walls != {Isolation.PROCESS}
    if spec.git is not None:
        return (WALLED_GIT if is_walled else GIT,)
    return (WALLED_FILES,) if is_walled and fetches(spec) else ()


_PROGRAM = re.compile(r"""\s*(?:exec\s+)?["']?(\.{1,2}/[\w./+-]+)""", re.ASCII)


def program_beside(run: str | tuple[str, ...]) -> str:
    """Return the relative path of the program with which a command begins; "": it has none."""
    first = run[0] if isinstance(run, tuple) and run else run
    if not isinstance(first, str):
        return ""
    lines = [line for line in first.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    match = _PROGRAM.match(lines[0]) if lines else None
    return match[1] if match else ""


def why_not_there(program: str) -> str:
    """Say why a program is not in the work folder, and what to do."""
    return (
        f"each run begins in a fresh, empty folder, where there is no {program}: bring it along"
        " with source (path: . is the folder of the job file), or write its absolute path"
    )
