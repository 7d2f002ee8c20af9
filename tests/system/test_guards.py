"""Each guard holds something: without it, a test that names it fails.

A copy of the package loses one guard at a time; then the tests of that guard run on the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import rota

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PACKAGE = Path(rota.__file__).parent
ROOT = Path(__file__).parents[2]
STORE = "tests/conformance/store"
OLD_REPORT = (
    f"{STORE}/test_ends.py::TestFinish"
    "::test_a_session_cannot_finish_its_own_new_attempt_with_an_old_report"
)
FAILED = 1  # pytest's exit code: tests ran, and some failed


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    file: str  # of the package
    text: str  # must be there exactly once
    without: str
    test: str  # that needs it


GUARDS = [
    Guard(
        "attempt number in a plain end",
        "store/ends.sql",
        "WHERE run.id = report.id AND run.attempt = report.number AND",
        "WHERE run.id = report.id AND",
        f"{OLD_REPORT}[sqlite-]",
    ),
    Guard(
        "attempt number in a plain end on PostgreSQL",
        "store/postgres/ends.sql",
        "WHERE run.id = report.id AND run.attempt = report.number AND",
        "WHERE run.id = report.id AND",
        f"{OLD_REPORT}[postgres-]",
    ),
    Guard(
        "attempt number in an end",
        "store/ends.py",
        '        and row["attempt"] == outcome.number\n',
        "",
        f"{OLD_REPORT}[sqlite-with something to tell]",
    ),
    Guard(
        "session in an end",
        "store/ends.py",
        '        and row["session"] == session\n',
        "",
        f"{STORE}/test_ends.py::TestFinish"
        "::test_another_session_cannot_finish_an_attempt[sqlite-FAILED]",
    ),
    Guard(
        "epoch of the shard in a firing",
        "store/shards.py",
        "if epochs.get(number) != ownership.epochs.get(number, 0)",
        "if number not in epochs",
        f"{STORE}/test_shards.py"
        "::test_an_owner_that_lost_a_shard_and_took_it_again_cannot_fire_from_before[sqlite]",
    ),
    Guard(
        "owner of the shard in a firing",
        "store/shards.sql",
        "WHERE number = ANY(:numbers) AND owner = :server;\n\n-- name: take_shards",
        "WHERE number = ANY(:numbers) AND :server = :server;\n\n-- name: take_shards",
        f"{STORE}/test_shards.py"
        "::test_a_shard_that_was_given_up_cannot_be_fired_by_who_had_it[sqlite]",
    ),
    Guard(
        "one id for a due time",
        "store/sqlite/migrations/0001_initial.sql",
        "    id               TEXT NOT NULL UNIQUE,\n    project          TEXT NOT NULL,\n"
        "    job_id           TEXT NOT NULL,\n    job              TEXT",
        "    id               TEXT NOT NULL,\n    project          TEXT NOT NULL,\n"
        "    job_id           TEXT NOT NULL,\n    job              TEXT",
        f"{STORE}/test_firing.py::test_sqlite_refuses_the_id_of_a_run_twice",
    ),
    Guard(
        "next due time and version in a firing",
        "store/firing.py",
        'if row["next_at"] == claimed and row["version"] == firing.schedule_version:',
        "if True:",
        f"{STORE}/test_firing.py"
        "::test_two_schedulers_that_fire_the_same_due_time_make_one_run[sqlite]",
    ),
    Guard(
        "version of the schedule in a firing",
        "store/firing.py",
        'if row["next_at"] == claimed and row["version"] == firing.schedule_version:',
        'if row["next_at"] == claimed:',
        f"{STORE}/test_firing.py"
        "::test_a_schedule_that_came_back_to_the_same_time_is_not_fired_by_an_old_reader[sqlite]",
    ),
    Guard(
        "deadline of the guardian",
        "guardian/loop.py",
        "if self._deadline is not None and now >= self._deadline:",
        "if False:",
        "tests/system/guardian/test_keeper.py::TestStopped"
        "::test_inner_process_alone_keeps_the_deadline[off]",
    ),
    Guard(
        "deadline of the keeper",
        "guardian/keeper.py",
        "if boottime() >= deadline + SLACK_SECONDS:",
        "if False:",
        "tests/system/guardian/test_keeper.py::TestStopped"
        "::test_all_are_dead_at_the_deadline[require-worker+outer+inner-]",
    ),
    Guard(
        "keeper that sees the outer process die",
        "guardian/keeper.py",
        "                if fd == self._outer_fd:\n                    raise _EndNow\n",
        "",
        "tests/system/guardian/test_keeper.py::TestKilled"
        "::test_nothing_survives_both_guardians[off--outer+inner]",
    ),
    Guard(
        "no privileges by exec",
        "guardian/spawn.py",
        "            linux.gain_nothing_by_exec()\n",
        "",
        "tests/system/guardian/test_confined.py::TestUser"
        "::test_it_has_another_user_no_other_groups_and_no_privilege[off]",
    ),
    Guard(
        "TERM beside the monitor of a sandbox",
        "guardian/trees.py",
        "if tree.is_signalled_inside and number != signal.SIGKILL:",
        "if False:",
        "tests/system/guardian/test_confined.py::TestSignalsInside"
        "::test_term_reaches_the_job_and_not_its_monitor[off-unshare]",
    ),
    Guard(
        "PROCESSING before exec",
        "worker/attempts.py",
        "return self.job.spec.delivery is Delivery.AT_MOST_ONCE",
        "return False",
        "tests/unit/worker/test_attempts.py"
        "::test_attempt_cancelled_while_it_waits_for_its_permit_never_starts",
    ),
    Guard(
        "cancel before a permit",
        "store/sessions.py",
        'return _Permit.GRANTED if row["cancel_at"] is None else _Permit.CANCELLED',
        "return _Permit.GRANTED",
        f"{STORE}/test_ends.py::TestStart::test_a_cancel_that_came_first_wins[sqlite]",
    ),
    Guard(
        "beats in the end of a session",
        "store/sessions.py",
        '        if expected_beats[row["id"]] == row["beats"]\n',
        "",
        f"{STORE}/test_sessions.py::test_a_session_whose_beats_moved_on_is_not_reaped[sqlite]",
    ),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, where a test may damage it."""
    target = tmp_path / "copy" / "rota"
    shutil.copytree(PACKAGE, target)  # with what is compiled: Python sees what changes
    return target


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "-"))
def test_without_it_a_test_fails(copy: Path, guard: Guard) -> None:
    file = copy / guard.file
    source = file.read_text()
    assert source.count(guard.text) == 1, "the guard is not where it was"

    file.write_text(source.replace(guard.text, guard.without))
    code, printed = run_tests(copy, [guard.test])

    assert code == FAILED, printed


def test_with_all_of_them_none_does(copy: Path) -> None:
    code, printed = run_tests(copy, sorted({guard.test for guard in GUARDS}))

    assert code == 0, printed


def run_tests(package: Path, tests: list[str]) -> tuple[int, str]:
    """The exit code, and what was printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
