"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.terminal import CommandFailed, Exit, Rehearsed, Terminal, inert
from rota.sdk.client import Client

if TYPE_CHECKING:
    from cyclopts import Token


def _convert(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


WholeNumber = Annotated[int, Parameter(converter=_convert, metavar="N")]


Priority = Annotated[
    WholeNumber, Parameter(help="0 to 9; 9 goes first.", validator=Number(gte=0, lte=9))
]
AtMost = Annotated[WholeNumber, Parameter(help="How many at most.", validator=Number(gte=1))]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Whose:
    """Options of a command that lists what people made."""

    mine: Annotated[bool, Parameter(help="Only what is yours.", negative="")] = False
    created_by: Annotated[
        str | None, Parameter(metavar="HANDLE", help="For admins: only what is this user's.")
    ] = None

    @property
    def creator(self) -> str | None:
        """Return whom a list is about, as the server is asked for it; None: everybody."""
        if self.mine and self.created_by is not None:
            raise CommandFailed("either --mine or --created-by", code=Exit.USAGE)
        return "me" if self.mine else self.created_by


_SHARED = Group("Shared options", sort_key=100)


class Format(StrEnum):
    """Output format of data."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True, slots=True)
class Display:
    """Options of how a command prints."""

    output: Annotated[
        Format, Parameter(name=["--output", "-o"], help="How to print data.", show_default=False)
    ] = Format.TABLE
    json: Annotated[bool, Parameter(help="The same as -o json.")] = False
    no_color: Annotated[bool, Parameter(help="No colours; NO_COLOR says the same.")] = False
    plain: Annotated[bool, Parameter(help="No colours, and marks in ASCII only.")] = False

    @property
    def format(self) -> Format:
        return Format.JSON if self.json else self.output

    def terminal(self) -> Terminal:
        return Terminal.standard(no_colour=self.no_color, plain=self.plain)


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True, slots=True)
class Remote(Display):
    """Options of a command that calls a server: also which one, and which project."""

    url: Annotated[
        str | None,
        Parameter(
            metavar="URL", help="The server. Default: setting url, or the one on this machine."
        ),
    ] = None
    project: Annotated[
        str | None, Parameter(metavar="NAME", help="The project. Default: default.")
    ] = None

    tz: Annotated[
        str | None,
        Parameter(
            metavar="ZONE",
            help="Read and print times in this zone. Default: ROTA_TZ, TZ, or the machine's.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.tz is not None:
            times.print_in(self.tz)

    def connect(self) -> Client:
        return Client(self.url, project=self.project)


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True, slots=True)
class Writing(Remote):
    """Options of a command that changes something."""

    dry_run: Annotated[
        bool,
        Parameter(help="Only say what would happen; exit code 20 if something would change."),
    ] = False

    def rehearse(self, what: str, *, changes: bool = True) -> NoReturn:
        """Print what the command would do, and end it; `changes`: if it would change anything."""
        self.terminal().tell(inert(what))
        raise Rehearsed(changes=changes)


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True, slots=True)
class Destroying(Writing):
    """Options of a command that deletes: it asks first on a terminal, elsewhere needs --yes."""

    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")] = False


_Projects = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="NAME", negative=(), help="Only this project may use it; repeat it for more."
    ),
]


@Parameter(name="*", group=_SHARED)
@dataclass(frozen=True, slots=True)
class Giving(Writing):
    """Options of a command that gives something to projects: `--project` may be there often."""

    # One word, whether it means one project or several.
    project: _Projects = ()  # type: ignore[assignment]

    def connect(self) -> Client:
        return Client(self.url)


# What commands get where none of these options is given.
EVERYBODY = Whose()
DISPLAY = Display()
REMOTE = Remote()
WRITING = Writing()
DESTROYING = Destroying()
GIVING = Giving()


if TYPE_CHECKING:
    from cyclopts import Token


def _convert_duration(_: type, tokens: Sequence[Token]) -> timedelta:
    from rota.runtime.offline import parse_duration  # not for those who give no length of time

    return parse_duration(tokens[0].value)


Duration = Annotated[timedelta, Parameter(converter=_convert_duration, metavar="TIME")]


if TYPE_CHECKING:
    from cyclopts import Token


def _convert_instant(_: type, tokens: Sequence[Token]) -> str:
    """Return the text as written; a time that the server would refuse is refused here first."""
    from rota.runtime.offline import read_time  # not for those who give no time

    text = tokens[0].value
    read_time(text, "UTC", ahead=True)
    return text


@dataclass(frozen=True, slots=True)
class Taken:
    """Time of the command line: the instant that it means, and how the server is asked for it."""

    at: datetime | None = None  # None: no time was given
    sent: str | None = None


def take_time(text: str | None, *, ahead: bool) -> Taken:
    """Read a time on the clocks that this command prints times on.

    What means the same in every zone is sent as written: lengths of time then count from the
    server's clock, and a repetition with the same idempotency key is the same request.
    """
    if text is None:
        return Taken()
    from rota.runtime.offline import read_time

    try:
        at = read_time(text, times.zone_name(), ahead=ahead)
    except ValueError as error:
        hint = "name your time zone: --tz Europe/Berlin"
        raise CommandFailed(str(error), code=Exit.USAGE, hint=hint) from error
    try:
        read_time(text, None, ahead=ahead)
    except ValueError:
        return Taken(at, at.isoformat().replace("+00:00", "Z"))
    return Taken(at, text)


Instant = Annotated[str, Parameter(converter=_convert_instant, metavar="TIME")]
