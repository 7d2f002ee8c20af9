from __future__ import annotations

import pytest

from rota.domain.calendars import in_words
from tests.unit.domain.calendars.builders import blackout, waiting


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ("Sat,Sun 00:00-24:00", "all day on Saturday and Sunday"),
        ("Mon-Fri 22:00-06:00", "from 22:00 to 06:00 the next day on Monday to Friday"),
        ("Fri 20:00-24:00", "from 20:00 to 24:00 on Friday"),
        ("daily 12:00-13:05", "from 12:00 to 13:05 every day"),
        ("day 1,15,L", "all day on days 1 and 15 and the last day of the month"),
        ("day L 06:00-07:00", "from 06:00 to 07:00 on the last day of the month"),
        ("Dec 24", "all day on day 24 of December"),
        ("2026-12-24", "all day on 2026-12-24"),
        ("2026-12-24/2026-12-26", "from 2026-12-24 00:00 to 2026-12-27 00:00"),
        ("2026-12-24T08:00:30/2026-12-24", "from 2026-12-24 08:00:30 to 2026-12-25 00:00"),
        (
            "2026-12-24T08:00+01:00/2026-12-24T09:00Z",
            "from 2026-12-24 07:00 UTC to 2026-12-24 09:00 UTC",
        ),
    ],
)
def test_windows_are_put_into_words(window: str, words: str) -> None:
    assert in_words(blackout(window)) == f"{words}, UTC: due times inside are skipped"


def test_zone_and_consequence_are_told() -> None:
    calendar = waiting("Sat", "daily 12:00-13:00", timezone="Europe/Berlin")

    assert in_words(calendar) == (
        "all day on Saturday; from 12:00 to 13:00 every day, Europe/Berlin:"
        " of the due times inside, the last runs when it ends"
    )
