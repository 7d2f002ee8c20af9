"""`rota doctor`: check what commonly goes wrong."""

from __future__ import annotations

from dataclasses import asdict

from rota.cli.exits import Exit
from rota.cli.local_settings import load_settings
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data
from rota.cli.table import Column, write_table
from rota.runtime import doctor as examination
from rota.runtime.findings import Finding, Verdict

_COLUMNS: tuple[Column[Finding], ...] = (
    Column("CHECK", lambda finding: finding.subject),
    Column("VERDICT", lambda finding: finding.verdict),
    Column("FOUND", lambda finding: finding.message),
    Column("DO", lambda finding: finding.advice or "–"),
)


def doctor(*, display: Display = DISPLAY) -> Exit:
    """Check Python, data folder, store, clock, queue, blobs, servers, guardian; change nothing."""
    findings = examination.run(load_settings())
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, [asdict(finding) for finding in findings])
    else:
        write_table(display.terminal(), _COLUMNS, findings)
    is_ill = any(finding.verdict is Verdict.PROBLEM for finding in findings)
    return Exit.UNEXPECTED if is_ill else Exit.DONE
