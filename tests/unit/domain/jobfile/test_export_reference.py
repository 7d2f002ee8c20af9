from __future__ import annotations

import re

from rota.domain.jobfile import reference
from rota.domain.jobfile.calendars import CALENDAR, HOLIDAYS
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, RATE_LIMIT
from rota.domain.jobfile.fields import FILE, JOB
from rota.domain.jobfile.files import SOURCE
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, RETRY, STEP


def test_every_field_is_on_the_page() -> None:
    page = reference()

    of_jobs = (FILE, JOB, STEP, RETRY, MISFIRE, DST, INPUT, SOURCE, CALENDAR, HOLIDAYS)
    of_order = (RATE_LIMIT, AFTER, LIMIT, RESOURCE)
    of_carts = (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN)
    for section in (*of_jobs, *of_order, *of_carts):
        for row in section.fields:
            assert f"`{row.name}`" in page
            assert row.doc in page or not row.is_available


def test_every_link_leads_to_a_heading() -> None:
    page = reference()

    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}

    links = re.findall(r"\]\(#([^)]*)\)", page)
    assert links
    assert set(links) <= anchors


def test_every_table_row_has_four_cells() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("|")]

    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
