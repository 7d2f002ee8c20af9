from __future__ import annotations

from textwrap import dedent

import pytest

from rota.domain.crontab import CrontabImport, import_crontab
from rota.domain.jobfile import read_file
from rota.domain.spec import JobSpec

USERS = {"root", "shop"}
SYSTEM_CRONTAB = """\
    SHELL=/bin/sh
    # m h dom mon dow user  command
    17 *    * * *   root    cd / && run-parts --report /etc/cron.hourly
    @daily          shop    /srv/shop/report.sh
    """


def imported(text: str, *, system: bool | None = False, home: str = "") -> CrontabImport:
    return import_crontab(
        dedent(text), timezone="Europe/Berlin", system=system, home=home, users=USERS
    )


def jobs(text: str, *, system: bool = False, home: str = "") -> list[JobSpec]:
    """The jobs of the file the crontab became, which must be valid."""
    file = read_file(imported(text, system=system, home=home).text, name="crontab")
    return [entry.spec for entry in file.jobs]


def only(text: str, *, system: bool = False, home: str = "") -> JobSpec:
    (spec,) = jobs(text, system=system, home=home)
    return spec


def expressions(text: str) -> tuple[str, ...]:
    schedule = only(text).schedule
    assert schedule is not None
    return schedule.expressions


def script(text: str) -> str:
    run = only(text).steps[0].run
    assert isinstance(run, str)
    return run


def remarks(text: str, *, system: bool | None = False) -> list[str]:
    problems = imported(text, system=system).problems
    return [f"{'warning' if it.warning else 'error'} {it}" for it in problems]


def test_crontab_becomes_a_file_a_person_could_have_written() -> None:
    text = imported("""\
        SHELL=/bin/bash
        PATH=/usr/bin:/bin
        MAILTO=ops@example.org
        # Dumps all databases
        # and ships them
        0 2 * * * /usr/local/bin/backup.sh --all
        */5 * * * * cd /srv && ./poll.py
        """).text

    assert text == dedent("""\
        # Imported from a crontab.
        defaults:
          timezone: Europe/Berlin
          env:
            PATH: /usr/bin:/bin

        jobs:
          # line 6, output was mailed to ops@example.org
          - name: backup
            description: |-
              Dumps all databases
              and ships them
            schedule: 0 2 * * *
            steps:
              - run: /usr/local/bin/backup.sh --all
                shell: bash

          # line 7, output was mailed to ops@example.org
          - name: poll
            schedule: '*/5 * * * *'
            steps:
              - run: cd /srv && ./poll.py
                shell: bash
        """)


def test_entry_runs_in_the_zone_of_the_host() -> None:
    schedule = only("0 2 * * * x").schedule

    assert schedule is not None
    assert (schedule.expressions, schedule.timezone) == (("0 2 * * *",), "Europe/Berlin")


def test_settings_hold_for_the_entries_below_them() -> None:
    first, second, third = jobs("""\
        0 1 * * * a
        KEY = "some value"
        CRON_TZ=Asia/Tokyo
        RANDOM_DELAY=15
        0 2 * * * b
        KEY='other'
        0 3 * * * c
        """)

    assert [spec.env for spec in (first, second, third)] == [
        {},
        {"KEY": "some value"},
        {"KEY": "other"},
    ]
    zones = [spec.schedule.timezone for spec in (first, second, third) if spec.schedule]
    assert zones == ["Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"]
    assert second.schedule is not None
    assert second.schedule.jitter.total_seconds() == 15 * 60


def test_variables_that_only_rota_sets_are_left_out_with_a_warning() -> None:
    crontab = "ROTA_FENCE=9\nKEY=a\n0 1 * * * x"

    [warning] = imported(crontab).problems

    assert only(crontab).env == {"KEY": "a"}
    assert (warning.line, warning.warning) == (3, True)
    assert "ROTA_FENCE left out" in warning.message


def test_commands_run_where_cron_ran_them() -> None:
    assert only("0 1 * * * x", home="/home/ann").path == "/home/ann"
    assert only("HOME=/srv/app\n0 1 * * * x", home="/home/ann").path == "/srv/app"
    assert only("HOME=/srv/app\n0 1 * * * x").env == {"HOME": "/srv/app"}
    assert only("0 1 * * * x").path == ""


@pytest.mark.parametrize(
    ("shell", "step"),
    [
        ("/bin/sh", ("sh", ())),
        ("/usr/bin/zsh", ("zsh", ())),
        ("/opt/fish", ("sh", ("/opt/fish",))),
    ],
)
def test_shell_is_the_one_cron_used(shell: str, step: tuple[str, tuple[str, ...]]) -> None:
    (imported_step,) = only(f"SHELL={shell}\n0 1 * * * x").steps

    assert (imported_step.shell, imported_step.interpreter) == step


def test_percent_starts_the_input_and_ends_its_lines() -> None:
    assert script("0 1 * * * mail -s hi bob%Hello,%%bye") == (
        "exec <<'END_OF_INPUT'\nHello,\n\nbye\nEND_OF_INPUT\nmail -s hi bob\n"
    )


def test_input_may_contain_its_own_end_mark() -> None:
    assert script("0 1 * * * cat%END_OF_INPUT%x") == (
        "exec <<'END_OF_INPUT_'\nEND_OF_INPUT\nx\nEND_OF_INPUT_\ncat\n"
    )


def test_escaped_percent_is_a_percent() -> None:
    assert script(r"0 1 * * * date +\%F%a\%b") == (
        "exec <<'END_OF_INPUT'\na%b\nEND_OF_INPUT\ndate +%F\n"
    )
    assert script(r"0 1 * * * date +\%F") == "date +%F"


def test_comments_above_an_entry_describe_it() -> None:
    above, apart = jobs("""\
        # Edit this file to introduce tasks to be run by cron.
        #
        # m h  dom mon dow   command
        # Backs up
        0 1 * * * a
        # A heading

        0 2 * * * b
        """)

    assert (above.description, apart.description) == ("Backs up", "")


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("@daily x", "@daily"),
        ("0\t2  * * MON-FRI x", "0 2 * * MON-FRI"),
        ("-*/10 * * * * x", "*/10 * * * *"),
        ("0 2 * * *\tx\r", "0 2 * * *"),
        ("@every 5m x", "@every 5m"),
        ("@minutely x", "@minutely"),
        ("0 */24 * * * x", "0 */24 * * *"),
        ("*/60 * * * * x", "*/60 * * * *"),
    ],
)
def test_times_are_taken_over(line: str, expression: str) -> None:
    assert expressions(line) == (expression,)


def test_names_are_unique_and_the_same_again() -> None:
    text = """\
        0 1 * * * backup.sh a
        0 2 * * * backup.sh b
        0 2 * * * backup.sh b
        """

    names = [spec.name for spec in jobs(text)]

    assert names[0] == "backup"
    assert len(set(names)) == 3
    assert names == [spec.name for spec in jobs(text)]


def test_user_of_a_system_crontab_is_noted() -> None:
    text = "17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly\n"

    assert script_of_system(text) == "cd / && run-parts --report /etc/cron.hourly"
    assert "# line 1, run by root" in imported(text, system=True).text
    assert remarks(text, system=True) == [
        'warning 1  "root": run_as is not available in this version of Rota'
        " — the job runs as the worker's user"
    ]


def script_of_system(text: str) -> object:
    return only(text, system=True).steps[0].run


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("@reboot x", "error 1  @reboot is not a time"),
        ("# a\n61 * * * * x", 'error 2  "61 * * * *": minute 61 does not exist'),
        ("@every_minute x", "error 1"),
        ("hello", "error 1  not a crontab line"),
        ("* * * * *", "error 1  not a crontab line"),
        ("CRON_TZ=Nowhere\n0 1 * * * x", "error 2  there is no time zone"),
        ("0 1 * * * x\0y", "error 1  run must not contain the character U+0000"),
        ("HOME=relative\n0 1 * * * x", 'error 2  path "relative" is beside the job file'),
        ("RANDOM_DELAY=soon\n0 1 * * * x", "error 2  jitter"),
        ("MAILTO=me\n", "warning 1  MAILTO: notifications are not available"),
        ("TZ=UTC\n", "warning 1  TZ is a variable of the commands"),
        ("SHELL=/opt/fish\n0 1 * * * x%y", 'warning 2  input after % is imported for sh'),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_reported_with_its_line(text: str, remark: str) -> None:
    (found,) = remarks(text)

    assert found.startswith(remark)


def test_switching_mail_off_needs_no_remark() -> None:
    assert remarks('MAILTO=""\n0 1 * * * x') == []


def test_user_column_is_noticed() -> None:
    result = imported(SYSTEM_CRONTAB, system=None, home="/home/ann")

    first, second = (entry.spec for entry in read_file(result.text, name="crontab").jobs)
    assert (first.name, second.name) == ("run-parts", "report")
    assert second.steps[0].run == "/srv/shop/report.sh"
    assert (first.path, second.path) == ("", "")
    assert str(result.problems[0]) == (
        "3  every line names a user before its command: read as a system crontab"
        " — --system says so too; if these are commands: --no-system"
    )


@pytest.mark.parametrize(
    "text",
    [
        "0 1 * * * shop /bin/a\n0 2 * * * /bin/b",
        "0 1 * * * shop",
        "0 1 * * * shop --all",
        "0 1 * * * git pull",
        "# 0 1 * * * root /bin/a",
        "",
    ],
)
def test_lines_that_run_commands_have_no_user_column(text: str) -> None:
    assert imported(text, system=None).text == imported(text, system=False).text


@pytest.mark.parametrize("line", ["0 1 * * * root /bin/a", "@daily root"])
def test_root_is_never_a_command(line: str) -> None:
    text = f"{line}\n0 2 * * * deploy /bin/b"

    assert remarks(text, system=None) == [
        "error 1  root is a user, not a command: nothing is imported"
        " — add --system if every line names its user, or --no-system"
    ]
    assert "name:" not in imported(text, system=None).text


def test_crontab_is_taken_as_it_is_said_to_be() -> None:
    text = "0 1 * * * root /bin/a"

    assert imported(text, system=False).problems == ()
    assert "- run: root /bin/a" in imported(text, system=False).text
    assert "- run: /bin/a" in imported(text, system=True).text


def test_system_line_without_command_is_refused() -> None:
    assert remarks("0 1 * * * root", system=True) == ["error 1  there is no command after the user"]


def test_faulty_line_does_not_keep_the_others_out() -> None:
    names = [spec.name for spec in jobs("61 * * * * bad\n0 1 * * * good\n@reboot never\n")]

    assert names == ["good"]


def test_empty_crontab_is_an_empty_file() -> None:
    assert jobs("# nothing\n") == []


def test_huge_crontab_is_refused() -> None:
    result = imported("#" * 5_000_000)

    assert [problem.message for problem in result.problems] == ["the crontab is larger than 4 MiB"]
