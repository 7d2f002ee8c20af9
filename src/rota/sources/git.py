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
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath

from rota.domain.addresses import Address, Network, Target, check_addresses
from rota.domain.errors import Denied, Invalid
from rota.domain.git import COMMIT, parse_repository, refs_named, submodule_url
from rota.sources.calls import Ending, Git, last_line, too_large
from rota.sources.wish import Bounds, GitWish, Login, SourceRefused, quoted, say

_MOST_SUBMODULES, _DEEPEST = 100, 10
_MOST_PACKS = 40
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
    submodules = _Submodules(_MOST_SUBMODULES)
    return _Checkout(wish, Path(folder), bounds, submodules).run()


@dataclass(slots=True)
class _Submodules:
    """How many may still come."""

    left: int

    def take(self, path: str) -> None:
        if not self.left:
            raise SourceRefused(f"there are more than {_MOST_SUBMODULES} submodules, at {path}")
        self.left -= 1


class _Checkout:
    """One repository with its submodules."""

    def __init__(
        self, wish: GitWish, folder: Path, bounds: Bounds, submodules: _Submodules, depth: int = 0
    ) -> None:
        self._wish = wish
        self._folder = folder
        self._bounds = bounds
        self._submodules = submodules
        self._depth = depth
        self._mirror = Path(wish.mirror, "main.git" if not depth else _name_of(wish.url))
        self._git = Git(self._mirror, (Path(wish.mirror), folder), bounds)

    def run(self) -> str:
        commit = self._mirrored()
        self._check_size(commit)
        self._make_tree(commit)
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

    def _check_size(self, commit: str) -> None:
        """Count the files of a commit before they are written: trees can name one a billion times.

        Raise `SourceRefused` if they are too many, or too large.
        """
        size = 0
        listing = self._git.lines("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        for files, line in enumerate(listing, 1):
            told = line.split(None, 4)[3]
            size += int(told) if told.isdigit() else 0
            if files > self._bounds.files:
                listing.close()
                raise SourceRefused(
                    f"{self._wish.url} has more than {self._bounds.files:,} files, the most that"
                    " the worker's setting source_files allows"
                )
        if size > self._bounds.bytes:
            raise SourceRefused(too_large(self._wish.url, self._bounds))

    def _make_tree(self, commit: str) -> None:
        # The one call that may read a folder of this machine as a repository.
        self._git.check(
            *("clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template="),
            *("--", str(self._mirror), str(self._folder)),
            inside=False,
            settings={"protocol.file.allow": "always"},
        )
        tree = self._git.at(self._folder)
        tree.check("remote", "set-url", "origin", self._wish.url)
        tree.check("checkout", "--quiet", "--detach", commit)

    def _uses_lfs(self, commit: str) -> bool:
        found = self._git.run("grep", "-q", "filter=lfs", commit, "--", "*.gitattributes")
        return found.status == 0

    # --- submodules

    def _fetch_submodules(self, commit: str) -> None:
        for path, below in self._links(commit):
            self._submodules.take(path)
            if self._depth == _DEEPEST:
                raise SourceRefused(f"submodules are more than {_DEEPEST} deep, at {path}")
            url = self._url_of(path)
            if url is None:
                raise SourceRefused(f"the submodule {quoted(path)} has no address in .gitmodules")
            say(f"submodule {path}: {url}")
            wish = replace(self._wish, url=url, ref="", commit=below)
            _check_way(self._folder, path)
            place = self._folder / path
            _Checkout(wish, place, self._bounds, self._submodules, self._depth + 1).run()

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
            if ending.status:
                raise SourceRefused(self._words(ending, settings, variables))

    def _helper(self, login: Login, given: _Given) -> dict[str, str]:
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
        if ending.is_too_large:
            return too_large(wish.url, self._git.bounds)
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


def _login_for(login: Login | None, target: Target) -> Login | None:
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
