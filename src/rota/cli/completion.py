"""`rota completion`: tab completion, with the names of live jobs and runs."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Your shell.")], /
) -> None:
    """Print a completion script.

    bash: source <(rota completion bash), in ~/.bashrc
    zsh: rota completion zsh > a file _rota in your fpath
    fish: rota completion fish > ~/.config/fish/completions/rota.fish
    """
    from rota.cli.program import build

    sys.stdout.write(build().generate_completion(prog_name="rota", shell=shell))
