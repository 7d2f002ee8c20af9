"""Whatever a crontab holds, what comes out is a valid job file."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.crontab import import_crontab
from rota.domain.jobfile import read_file

TIMES = st.sampled_from(
    ["0 2 * * *", "*/5 * * * *", "@daily", "@reboot", "61 * * * *", "0 0 31 2 *"]
)
COMMANDS = st.text("ab/. %\\'\"$&|;=-#\té", min_size=1, max_size=30)
LINES = st.one_of(
    st.builds("{} {}".format, TIMES, COMMANDS),
    st.builds("{}={}".format, st.sampled_from(["SHELL", "HOME", "TZ", "CRON_TZ", "A"]), COMMANDS),
    st.builds("# {}".format, COMMANDS),
    st.text(max_size=30),
)


@given(st.lists(LINES, max_size=8).map("\n".join), st.sampled_from([True, False, None]))
def test_import_of_any_text_is_a_valid_file(text: str, system: bool | None) -> None:
    result = import_crontab(text, timezone="UTC", system=system)

    file = read_file(result.text, name="crontab")
    assert len(file.jobs) <= len(text.split("\n"))
    assert all(problem.line for problem in result.problems)


@settings(max_examples=50)
@given(st.lists(st.tuples(TIMES, COMMANDS.filter(str.strip)), max_size=8))
def test_every_entry_becomes_a_job_or_a_problem(entries: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{when} {command.strip()}" for when, command in entries)

    result = import_crontab(text, timezone="UTC")

    refused = {problem.line for problem in result.problems if not problem.warning}
    assert len(read_file(result.text, name="crontab").jobs) + len(refused) == len(entries)
