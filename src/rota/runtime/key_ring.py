"""The key ring of this server: made, loaded from where the settings say, and renewed."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path

import structlog

from rota.domain.errors import Invalid, RotaError
from rota.domain.key_ring import Key, KeyRing, new_key, parse_keys
from rota.runtime import config
from rota.runtime.home import key_ring_file, read_private, write_private
from rota.runtime.settings import Settings

log = structlog.get_logger()

COMMAND_SECONDS = 10.0


def make_key_ring(settings: Settings) -> Path | None:
    """Make a ring in the data folder where there is none; return its path if it is new.

    Not where other servers may be on the store: they could not open what this one seals.
    """
    path = key_ring_file(settings.home)
    if not _is_in_home(settings) or path.exists():
        return None
    write_private(path, f"{new_key().line()}\n")
    return path


async def load_key_ring(settings: Settings) -> KeyRing | None:
    """Load the ring of the settings or of the data folder; None if there is none.

    Raise `Invalid` with the name of the setting if it cannot be read.
    """
    keys = await _load_keys(settings)
    return KeyRing(keys) if keys else None


async def _load_keys(settings: Settings) -> tuple[Key, ...]:
    if settings.secrets_key_command:
        text = await _printed_by(settings.secrets_key_command)
        return _parsed(text, "secrets_key_command")
    if settings.secrets_key.startswith(("/", "~", ".")):
        return _parsed(_read(settings.secrets_key), "secrets_key")
    if settings.secrets_key:
        return _parsed(settings.secrets_key, "secrets_key")
    path = key_ring_file(settings.home)
    if _is_in_home(settings) and path.exists():
        return _parsed(read_private(path), str(path))
    return ()


def _is_in_home(settings: Settings) -> bool:
    return settings.is_alone and not settings.secrets_key and not settings.secrets_key_command


def _parsed(text: str, where: str) -> tuple[Key, ...]:
    try:
        return parse_keys(text)
    except Invalid as error:
        raise Invalid(
            f"the key ring of {where} cannot be used", error.problems, code="bad_settings"
        ) from error


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Invalid(
            f"the key ring {path}, which secrets_key names, cannot be read: {reason}",
            code="bad_settings",
        ) from error


async def _printed_by(command: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise _failed(str(error)) from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            printed, _ = await process.communicate()
    except TimeoutError as error:
        raise _failed(f"it took longer than {COMMAND_SECONDS:g} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _failed(f"it ended with exit code {process.returncode}")
    return printed.decode(errors="replace")


def _failed(reason: str) -> Invalid:
    return Invalid(
        f"the command of secrets_key_command did not print a key ring: {reason}",
        code="bad_settings",
        hint="what it says to standard error is in the log of this server",
    )


class KeyRingRenewal:
    """Service that loads the ring again whenever it is asked to, as by a signal."""

    name = "key-ring-renewal"

    def __init__(self, settings: Settings, ring: KeyRing | None) -> None:
        self._settings = settings
        self._ring = ring
        self._wanted = asyncio.Event()

    def ask(self) -> None:
        """Load the ring again soon; safe to call from a signal handler of the event loop."""
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.run_once()

    async def run_once(self) -> None:
        """Load the ring again; one that cannot be used leaves the present one in force."""
        try:
            told = config.load()
            keys = await _load_keys(
                replace(
                    self._settings,
                    secrets_key=told.secrets_key,
                    secrets_key_command=told.secrets_key_command,
                )
            )
        except RotaError as error:
            problems = [str(problem) for problem in getattr(error, "problems", ())]
            log.error("key_ring.not_renewed", error=error.message, problems=problems)
            return
        if self._ring is None or not keys:
            log.error("key_ring.not_renewed", error="a first or last ring needs a restart")
            return
        self._ring.replace(keys)
        log.info("key_ring.renewed", keys=self._ring.ids)
