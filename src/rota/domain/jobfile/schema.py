"""The JSON Schema of the job file, for editors and other programs."""

from __future__ import annotations

from rota.domain.jobfile.calendars import CALENDAR, HOLIDAYS
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, RATE_LIMIT
from rota.domain.jobfile.fields import DEFAULTS, FILE, JOB
from rota.domain.jobfile.kinds import Schema
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, RETRY, SOURCE, STEP

_SECTIONS = (JOB, DEFAULTS, STEP, RETRY, MISFIRE, DST, INPUT, SOURCE, CALENDAR, HOLIDAYS)
_SECTIONS_OF_ORDER = (RATE_LIMIT, AFTER, LIMIT, RESOURCE)
_SECTIONS_OF_CARTS = (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN)


def json_schema() -> Schema:
    """The schema of a whole file, in draft 2020-12; a single job's is `$defs/job` in it.

    What passes it may still break a rule that a schema cannot say: an impossible cron
    expression, a name that is there twice.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rota job file",
        **FILE.definition(),
        "$defs": {
            section.title: section.definition()
            for section in (*_SECTIONS, *_SECTIONS_OF_ORDER, *_SECTIONS_OF_CARTS)
        },
    }
