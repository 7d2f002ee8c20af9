"""`rota schema`: the JSON Schema of the job file."""

from __future__ import annotations

from rota.cli.options import DISPLAY, Display
from rota.cli.printing import print_data
from rota.runtime.offline import file_schema


def schema(*, display: Display = DISPLAY) -> None:
    """Print the JSON Schema of the job file, for editors and other programs."""
    print_data(display, file_schema())
