"""`rota version`."""

from __future__ import annotations

import platform

from rota import __version__
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data


def version(*, display: Display = DISPLAY) -> None:
    """Print the version."""
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, {"rota": __version__, "python": platform.python_version()})
    else:
        display.terminal().write(f"rota {__version__}")
