"""Fetching from git: a mirror that is kept, and a work tree of one commit.

What a repository says is not believed: neither the addresses of its submodules, nor where it
redirects to, nor how large it is. Of its files none is executed: no hook, no filter. What is shown
to a server, a password or a key, is only ever in memory; git and ssh get the name of a descriptor
of this process, which nobody else can open.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath

from rota.domain.addresses import Address, Network, Target, check_addresses
from rota.domain.errors import Denied, Invalid
from rota.domain.git import COMMIT, parse_repository, refs_named, submodule_url
from rota.sources.calls import (
    Ending,
    Git,
    TooLarge,
    last_line,
    require_git,
    size_of,
    too_large,
)
from rota.sources.wish import Bounds, GitLogin, GitWish, SourceRefused, quoted, say

_MOST_SUBMODULES, _DEEPEST = 100, 10
_MOST_PACKS = 40
_LONGEST_PATH = 4_095  # bytes, of what the kernel opens
_SSH_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "GlobalKnownHostsFile=/dev/null",
    "CheckHostIP=no",
    "IdentitiesOnly=yes",
    "PreferredAuthentications=publickey",
    "PermitLocalCommand=no",
    "ForwardAgent=no",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
)


def fetch(wish: GitWish, folder: str, bounds: Bounds) -> str:
    """Bring one commit of a repository into an empty folder; return which one that is.

    Raise `SourceRefused`.
    """
    require_git()
    mirror, top = Path(wish.mirror), Path(folder)
    is_new = not any(mirror.iterdir())
    try:
        return _Checkout(wish, top, _Sum(top, bounds)).run()
    except TooLarge:
        # A mirror also has what was deleted there since, and submodules of long ago.
        _empty(mirror)
        if is_new:
            raise
    _empty(top)
    return _Checkout(wish, top, _Sum(top, bounds)).run()


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@dataclass(slots=True)
class _Sum:
    """Size of a repository and its submodules together: the same one may be there many times."""

    top: Path  # the folder of all of them
    bounds: Bounds
    submodules: int = 0
    files: int = 0
    bytes: int = 0
    packed_bytes: int = 0

    def add_submodule(self, path: str) -> None:
        self.submodules += 1
        if self.submodules > _MOST_SUBMODULES:
            most = f"more than {_MOST_SUBMODULES} submodules"
            raise SourceRefused(f"there are {most}, at {quoted(path)}")

    def add_file(self, url: str, size: int) -> None:
        self.files += 1
        if self.files > self.bounds.files:
            raise SourceRefused(
                f"{url}{self._others} has more than {self.bounds.files:,} files and folders, the"
                " most that the worker's setting source_files allows"
            )
        self.add_bytes(url, size)

    def add_bytes(self, url: str, size: int) -> None:
        self.bytes += size
        if self.bytes > self.bounds.bytes:
            raise SourceRefused(too_large(f"{url}{self._others}", self.bounds))

    def add_packed(self, url: str, size: int) -> None:
        self.packed_bytes += size
        if self.packed_bytes > self.bounds.bytes:
            raise SourceRefused(too_large(f"{url}{self._others}", self.bounds))

    @property
    def _others(self) -> str:
        return " with what was fetched before it" if self.submodules else ""


class _Checkout:
    """One repository with its submodules."""

    def __init__(self, wish: GitWish, folder: Path, whole: _Sum, depth: int = 0) -> None:
        self._wish = wish
        self._folder = folder
        self._whole = whole
        self._depth = depth
        self._mirror = Path(wish.mirror, "main.git" if not depth else _name_of(wish.url))
        self._git = Git(self._mirror, (Path(wish.mirror), whole.top), whole.bounds, wish.mask)

    def run(self) -> str:
        commit = self._mirrored()
        told = self._check_size(commit)
        self._make_tree(commit, told)
        if self._uses_lfs(commit):
            say(f"{self._wish.url}: files of Git LFS are not fetched; they are pointers")
        if self._wish.submodules:
            self._fetch_submodules(commit)
        return commit

    # --- the mirror

    def _mirrored(self) -> str:
        """Return the commit, which the mirror has now."""
        wish = self._wish
        self._open_mirror()
        wanted = wish.commit or (wish.ref if COMMIT.fullmatch(wish.ref) else "")
        if wanted and self._has(wanted):
            return wanted
        target = parse_url(wish.url, allows_http=wish.allows_http)
        remote = _Remote(self._git, wish, target)
        refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        if not wish.ref and not wanted:
            refs.insert(0, "+HEAD:refs/rota/head")
        remote.fetch(refs)
        if wanted and not self._has(wanted):
            # No branch or tag leads to it any more, but a server may still have it.
            with suppress(SourceRefused):
                remote.fetch([f"+{wanted}:refs/rota/{wanted}"])
        self._pack()
        return self._resolved(wanted)

    def _open_mirror(self) -> None:
        mirror = self._mirror
        if not (mirror / "objects").is_dir() or not (mirror / "HEAD").is_file():
            shutil.rmtree(mirror, ignore_errors=True)
            self._git.check("init", "--quiet", "--bare", "--template=", str(mirror), inside=False)
        # Left by a fetch that was killed. The mirror is locked: nobody else is at it.
        for lock in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock")):
            lock.unlink()
        for pack in mirror.glob("objects/pack/tmp_*"):
            pack.unlink()

    def _has(self, commit: str) -> bool:
        name = f"{commit}^{{commit}}"
        return self._git.run("cat-file", "-e", name, is_shown=False).status == 0

    def _pack(self) -> None:
        self._git.check("pack-refs", "--all")
        if len(list(self._mirror.glob("objects/pack/*.pack"))) > _MOST_PACKS:
            self._git.check("repack", "-a", "-d", "-q")

    def _resolved(self, wanted: str) -> str:
        wish = self._wish
        names = [wanted] if wanted else refs_named(wish.ref)
        for name in names:
            found = self._git.run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
            if found.status == 0:
                return found.text.strip()
        if wish.commit:
            raise SourceRefused(
                f"{wish.url} does not have the commit {wish.commit} any more, with which this run"
                " began: trigger the job anew"
            )
        what = f"branch, tag or commit {quoted(wish.ref)}" if wish.ref else "HEAD"
        raise SourceRefused(f"{wish.url} has no {what}: correct ref in the job")

    # --- the work tree

    def _check_size(self, commit: str) -> int:
        """Count the files of a commit before they are written: trees can name one a billion times.

        Return the bytes of all of them. Raise `SourceRefused` if they are too many, or too large.
        """
        url, before = self._wish.url, self._whole.bytes
        # With the folders: there can be a billion of these that have no file.
        with closing(
            self._git.lines("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
        ) as it:
            for line in it:
                about, _, path = line.partition("\t")
                told = about.split()[3]
                if len(os.fsencode(path)) > _LONGEST_PATH:
                    what = f"a path of more than {_LONGEST_PATH:,} bytes"
                    raise SourceRefused(f"{url} has {what}, which no file can have")
                self._whole.add_file(url, int(told) if told.isdigit() else 0)
        return self._whole.bytes - before

    def _make_tree(self, commit: str, told: int) -> None:
        # The one call that may read a folder of this machine as a repository.
        self._git.check(
            *("clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template="),
            *("--", str(self._mirror), str(self._folder)),
            inside=False,
            settings={"protocol.file.allow": "always"},
        )
        self._whole.add_packed(self._wish.url, size_of(self._folder / ".git"))
        tree = self._git.at(self._folder)
        tree.check("remote", "set-url", "origin", self._wish.url)
        tree.check("checkout", "--quiet", "--detach", commit)
        # Its attributes let git write more than it keeps: $Id$, ends of lines, encodings.
        written = size_of(self._folder) - size_of(self._folder / ".git")
        self._whole.add_bytes(self._wish.url, max(written - told, 0))

    def _uses_lfs(self, commit: str) -> bool:
        found = self._git.run("grep", "-q", "filter=lfs", commit, "--", "*.gitattributes")
        return found.status == 0

    # --- submodules

    def _fetch_submodules(self, commit: str) -> None:
        for path, below in self._links(commit):
            self._whole.add_submodule(path)
            if self._depth == _DEEPEST:
                raise SourceRefused(f"submodules are more than {_DEEPEST} deep, at {quoted(path)}")
            url = self._url_of(path)
            if url is None:
                raise SourceRefused(f"the submodule {quoted(path)} has no address in .gitmodules")
            say(self._wish.mask.text(f"submodule {quoted(path)}: {url}"))
            wish = replace(self._wish, url=url, ref="", commit=below)
            _check_way(self._folder, path)
            place = self._folder / path
            _Checkout(wish, place, self._whole, self._depth + 1).run()

    def _links(self, commit: str) -> Iterator[tuple[str, str]]:
        """Yield the paths of submodules, and the commit of each."""
        for line in self._git.lines("ls-tree", "-r", "-z", "--full-tree", commit):
            about, _, path = line.partition("\t")
            mode, _, below = about.split(None, 2)
            if mode == "160000":
                yield path, below.strip()

    def _url_of(self, path: str) -> str | None:
        """Return the address of a submodule; a relative one is below that of the repository."""
        told = self._git.at(self._folder).run(
            *("config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
        )
        for entry in filter(None, told.text.split("\0")):
            key, _, value = entry.partition("\n")
            if value == path:
                name = key.removesuffix(".path")
                tree = self._git.at(self._folder)
                url = tree.run("config", "--file", ".gitmodules", "--null", "--get", f"{name}.url")
                try:
                    return submodule_url(self._wish.url, url.text.removesuffix("\0"))
                except Invalid as error:
                    raise SourceRefused(str(error)) from None
        return None


def _name_of(url: str) -> str:
    return f"{sha256(url.encode()).hexdigest()}.git"


def _check_way(folder: Path, path: str) -> None:
    """Refuse a submodule whose place is a link, or is reached through one."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or any(part in ("..", ".git") for part in pure.parts):
        raise SourceRefused(f"the submodule {quoted(path)} would be outside of the work folder")
    place = folder
    for part in pure.parts:
        place /= part
        if place.is_symlink() or not place.is_dir():
            raise SourceRefused(f"the submodule {quoted(path)} is in the place of a link or file")
    if any(place.iterdir()):
        raise SourceRefused(f"the submodule {quoted(path)} is where other files are")


def parse_url(url: str, *, allows_http: bool = False) -> Target:
    """Parse the address of a repository, or raise `SourceRefused`."""
    if not url.isascii():
        raise SourceRefused(f"{quoted(url)} is no address to go to: write it in ASCII")
    try:
        return parse_repository(url, allows_http=allows_http)
    except Invalid as error:
        raise SourceRefused(str(error)) from None


def addresses_of(target: Target, opened: Sequence[Network]) -> list[Address]:
    """Look a host up once, and check all that it has; raise `SourceRefused`."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceRefused(f"the host {target.host} cannot be looked up: {reason}") from None
    addresses = list(dict.fromkeys(ip_address(str(entry[4][0])) for entry in found))
    try:
        check_addresses(target.host, addresses, opened)
    except Denied as error:
        hint = f": {error.hint}" if error.hint else ""
        raise SourceRefused(f"{error}{hint}") from None
    return addresses


class _Remote:
    """Repository at its address."""

    def __init__(self, git: Git, wish: GitWish, target: Target) -> None:
        self._git = git
        self._wish = wish
        self._target = target
        self._login = _login_for(wish.login, target)

    def fetch(self, refs: Sequence[str]) -> None:
        target = self._target
        addresses = addresses_of(target, [ip_network(text) for text in self._wish.opened])
        settings = {f"protocol.{target.scheme}.allow": "always"}
        variables: dict[str, str] = {}
        with _Given() as given:
            if target.scheme == "ssh":
                variables["GIT_SSH_COMMAND"] = self._ssh(addresses[0], given)
                variables["GIT_SSH_VARIANT"] = "ssh"
            else:
                shown = ",".join(f"[{it}]" if it.version == 6 else str(it) for it in addresses)
                settings["http.curloptResolve"] = f"{target.host}:{target.port}:{shown}"
                if self._wish.authorities:
                    settings["http.sslCAInfo"] = given.file(self._wish.authorities)
                if self._login is not None:
                    settings |= self._helper(self._login, given)
            ending = self._git.run(
                *("fetch", "--quiet", "--force", "--prune", "--no-auto-gc", "--no-tags"),
                *("--no-write-fetch-head", "--no-recurse-submodules", "--", str(target), *refs),
                settings=settings,
                variables=variables,
            )
            if ending.is_too_large:
                raise TooLarge(too_large(self._wish.url, self._git.bounds))
            if ending.status:
                raise SourceRefused(self._words(ending, settings, variables))

    def _helper(self, login: GitLogin, given: _Given) -> dict[str, str]:
        """Return settings by which git gets a password for this host, and for no other."""
        told = f"username={login.user}\npassword={login.password}\n"
        return {f"credential.{self._target.origin}.helper": f"!cat {given.file(told)} #"}

    def _ssh(self, address: Address, given: _Given) -> str:
        wish, target = self._wish, self._target
        if not wish.known_hosts:
            raise SourceRefused(
                f"{wish.url} is reached by ssh, and the worker knows no keys of hosts: an admin"
                " sets git_known_hosts (ssh-keyscan prints them; compare them first)"
            )
        if self._login is None or not self._login.key:
            raise SourceRefused(
                f"{wish.url} is reached by ssh, which needs a key: name one with credential"
            )
        alias = target.host if target.port == 22 else f"[{target.host}]:{target.port}"
        options = [
            *_SSH_OPTIONS,
            f"HostName={address}",
            f"HostKeyAlias={alias}",
            f"UserKnownHostsFile={given.file(wish.known_hosts)}",
            f"IdentityFile={given.file(self._login.key)}",
        ]
        quoted_options = " ".join(f"-o '{option}'" for option in options)
        return f"ssh -F /dev/null {quoted_options}"

    # --- why it did not work

    def _words(
        self, ending: Ending, settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> str:
        wish, said = self._wish, ending.complaint
        if status := re.search(r"returned error: (\d+)", said):
            return self._of_status(int(status[1]), settings, variables)
        name = f"the credential {self._login.name}" if self._login is not None else ""
        if "fatal: repository" in said and "not found" in said:
            return self._of_status(404, settings, variables)
        if "Authentication failed" in said:
            return f"{wish.url} refuses {name or 'whoever has no login'}: correct it"
        if "could not read Username" in said:
            return self._wants_login()
        if "Host key verification failed" in said or "IDENTIFICATION HAS CHANGED" in said:
            return (
                f"{self._target.host} shows a key that is not in the worker's git_known_hosts:"
                " an admin compares it, and adds it there"
            )
        if "Permission denied" in said:
            return f"{wish.url} refuses the key of {name}: add it there, or name another one"
        if "Couldn't resolve" in said or "couldn't find remote ref HEAD" in said:
            return f"{wish.url} has no HEAD: it is empty, or ref has to be given"
        return f"{wish.url} cannot be fetched: {last_line(said) or 'git said nothing'}"

    def _of_status(
        self, status: int, settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> str:
        wish = self._wish
        if 300 <= status < 400:
            target = self._redirect(settings, variables)
            where = f" to {quoted(target)}: write that address, if you trust it" if target else ""
            return f"{wish.url} redirects{where or ', which is not followed'}"
        if status in (401, 403):
            if self._login is None:
                return self._wants_login()
            return f"{wish.url} refuses the credential {self._login.name} ({status}): correct it"
        if status == 404:
            return f"{wish.url} is not there (404), or only for those with a login: credential"
        return f"{wish.url} answered {status}: try again later, or ask who runs it"

    def _wants_login(self) -> str:
        return (
            f"{self._wish.url} wants a login: name one of the worker's git_credentials with"
            " credential"
        )

    def _redirect(self, settings: Mapping[str, str], variables: Mapping[str, str]) -> str:
        """Ask again, to learn where it leads."""
        trace = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
        ending = self._git.run(
            *("ls-remote", "--quiet", "--", str(self._target)),
            settings=settings,
            variables={**variables, **trace},
            is_shown=False,
        )
        found = re.search(r"<= Recv header: [Ll]ocation: (\S+)", ending.complaint)
        return found[1] if found else ""


def _login_for(login: GitLogin | None, target: Target) -> GitLogin | None:
    """Return the login, if it is for this very host: a submodule may be on another one."""
    return login if login is not None and login.origin == target.origin else None


class _Given:
    """Files in memory that only processes of this one can read."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def __enter__(self) -> _Given:
        return self

    def file(self, text: str) -> str:
        """Return the path of a file with this text."""
        descriptor = os.memfd_create("given", os.MFD_CLOEXEC)
        self._descriptors.append(descriptor)
        os.fchmod(descriptor, 0o600)  # ssh wants no key that others could read
        os.write(descriptor, text.encode())
        return f"/proc/{os.getpid()}/fd/{descriptor}"

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
