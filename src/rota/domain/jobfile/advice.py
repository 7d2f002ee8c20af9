"""What to tell whoever wrote something else than the file's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.domain.jobfile.wording import did_you_mean

_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Advice:
    """What to tell whoever wrote something else in the place of a section's fields."""

    form: str = ""  # a section in short, for a value that is no mapping
    slips: Mapping[str, str] = field(default_factory=dict)  # wrong keys that are likely
    otherwise: str = ""  # for a key that is near to none

    def about(self, key: str, known: list[str]) -> str:
        """What a key was meant to be that is not among the known ones; "": nobody knows."""
        return self.slips.get(_plain(key)) or did_you_mean(key, known) or self.otherwise


def _plain(key: str) -> str:
    """`runs-on` and `runsOn` as Rota would write them: `runs_on`."""
    return _BEFORE_CAPITAL.sub("_", key).replace("-", "_").lower()
