"""An app of the SDK that is named on the command line, as the job file it stands for."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from rota.cli.exits import CommandFailed, Exit
from rota.cli.files import NamedText
from rota.sdk.app import load_app


def read_app(reference: str) -> NamedText:
    """The jobs of `MODULE:app`, in a set that has the app's name."""
    _look_in_this_folder()
    try:
        app = load_app(reference)
        text = json.dumps({"set": app.name, "jobs": app.documents()})
    except Exception as error:
        told = traceback.format_exception_only(error)[-1].strip()
        raise CommandFailed(
            f"{reference} cannot be used: {told}",
            code=Exit.INVALID_FILE,
            hint="--app MODULE:app names a variable of a module here or of an installed package",
        ) from error
    return NamedText(reference, app.name, text, has_lines=False)


def _look_in_this_folder() -> None:
    """As workers do; the command itself was found somewhere else."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
