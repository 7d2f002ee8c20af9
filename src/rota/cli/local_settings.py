"""The settings of this machine, with what the command line says on top."""

from __future__ import annotations

from rota.cli.local_errors import told_as_failures
from rota.runtime import config
from rota.runtime.settings import Settings


def load_settings(**flags: object) -> Settings:
    """The settings in force; a flag that is None was not given."""
    with told_as_failures():
        return config.load(flags)
