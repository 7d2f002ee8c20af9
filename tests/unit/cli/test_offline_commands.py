"""Commands that need no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.console import Console

ROOT = Path(__file__).parents[3]
BAD_FILE = """\
jobs:
  - name: BuildAndTest
    shedule: "0 0 * * *"
    steps: [{run: make}]
  - name: Nightly
    schedule: "0 25 * * *"
    steps: [{run: make}]
"""


def write(text: str, name: str = "jobs.yaml") -> str:
    Path(name).write_text(text)
    return name


@pytest.mark.parametrize("name", ["jobs.yaml", "scarce.yaml", "welcome.yaml"])
def test_examples_are_valid(rota: Console, name: str) -> None:
    ended = rota("validate", str(ROOT / "examples" / name))

    assert ended.code == 0
    assert "valid" in ended.out
    # What a script needs beside it is told, as its page does.
    assert all("fresh, empty folder" in line for line in ended.err.splitlines())


def test_every_problem_of_a_file_is_told_with_its_place(rota: Console) -> None:
    ended = rota("validate", write(BAD_FILE))

    assert ended.code == 6
    assert ended.err.splitlines() == [
        'jobs.yaml:3:5  unknown key "shedule" in job BuildAndTest — did you mean "schedule"?',
        'jobs.yaml:6:15  "0 25 * * *": hour 25 does not exist (0–23)',
        "jobs.yaml: 2 errors",
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        *("0 */24 * * *", "*/60 * * * *", "0 0 12 * * ? *", "@every 5m", "@minutely"),
        *("0 9 * * friday", "0 9 1 january *", "0 9 L-1W * *"),
        *("every 5 minutes", "every 10 seconds", "every day at 02:00", "every day at 02:00 UTC"),
    ],
)
def test_schedules_that_people_bring_along_are_valid(rota: Console, schedule: str) -> None:
    ended = rota(
        "validate", write(f"jobs: [{{name: a, schedule: '{schedule}', steps: [{{run: x}}]}}]")
    )

    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ("schedule: */5 * * * *", 'jobs.yaml:3:15  not valid YAML: a value without quotes'),
        ("schedule: */5 * * * *", 'put it in quotes: schedule: "*/5 * * * *"'),
        ("owner: hello: world", 'put it in quotes: owner: "hello: world"'),
    ],
)  # fmt: skip
def test_value_that_needs_quotes_is_told_to(rota: Console, slip: str, told: str) -> None:
    ended = rota("validate", write(f"jobs:\n  - name: a\n    {slip}\n    steps: [{{run: x}}]\n"))

    assert ended.code == 6
    assert told in ended.err


def test_one_bad_file_among_good_ones_makes_the_check_fail(rota: Console) -> None:
    good = write("jobs: [{name: a, steps: [{run: x}]}]", "good.yaml")

    ended = rota("validate", good, write(BAD_FILE))

    assert ended.code == 6
    assert "good.yaml: valid, 1 job" in ended.out


def test_warning_does_not_make_a_file_invalid(rota: Console) -> None:
    ended = rota("validate", write('jobs: [{name: a, schedule: "0 2 * *", steps: [{run: x}]}]'))

    assert ended.code == 0
    assert "warning:" in ended.err


CART_FILE = """\
jobs: [{name: upgrade, inputs: {host: {}}, steps: [{run: x}]}]
carts: [{name: rollout, job: upgrade, items_from: fleet.csv}]
"""


def test_limits_and_resources_are_counted_too(rota: Console) -> None:
    ended = rota("validate", str(ROOT / "examples" / "scarce.yaml"))

    assert ended.lines[0].endswith("scarce.yaml: valid, 2 jobs, 1 limit, 2 resources")


def test_a_file_with_carts_is_valid_with_its_files_of_items(rota: Console) -> None:
    Path("sub").mkdir()
    write("key,host\na,b\n", "sub/fleet.csv")

    ended = rota("validate", write(CART_FILE, "sub/jobs.yaml"))

    assert ended.code == 0
    assert ended.lines == ["sub/jobs.yaml: valid, 1 job, 1 cart"]


def test_every_problem_of_a_file_of_items_is_told_with_its_line(rota: Console) -> None:
    write("key,order,host\na,1,\nb,x,c\n", "fleet.csv")

    ended = rota("validate", write(CART_FILE))

    assert ended.code == 6
    assert ended.out == ""
    assert ended.err.splitlines() == [
        'fleet.csv:2  input "host" must be given',
        'fleet.csv:3  order must be a whole number from 1 to 1,000,000,000, not "x"',
        "fleet.csv: the file of items has 2 errors",
    ]


def test_problems_of_items_for_programs(rota: Console) -> None:
    ended = rota("validate", write(CART_FILE), "--json")

    [checked] = ended.json
    assert (checked["valid"], checked["carts"], checked["problems"]) == (False, ["rollout"], [])
    [items] = checked["item_files"]
    assert (items["file"], items["cart"], items["valid"]) == ("fleet.csv", "rollout", False)
    assert "No such file" in items["problems"][0]["message"]


def test_problems_for_programs(rota: Console) -> None:
    ended = rota("validate", write(BAD_FILE), "--json")

    [checked] = ended.json
    assert ended.code == 6
    assert (checked["file"], checked["valid"]) == ("jobs.yaml", False)
    assert [problem["line"] for problem in checked["problems"]] == [3, 6]


@pytest.mark.parametrize(
    ("path", "code"),
    [("missing.yaml", 3), (".", 6), ("binary", 6)],
    ids=["missing", "folder", "binary"],
)
def test_file_that_cannot_be_read_is_named(rota: Console, path: str, code: int) -> None:
    Path("binary").write_bytes(b"\xff\xfe\x00")

    ended = rota("validate", path)

    assert ended.code == code
    assert path in ended.err


def test_schedule_in_words_with_what_clocks_do_to_it(rota: Console) -> None:
    ended = rota(
        "cron", "explain", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-26T12:00"
    )

    assert ended.code == 0
    assert ended.lines[:2] == [
        "every day at 02:30, Europe/Berlin",
        "  Sat 27 Mar 02:30 · Sun 28 Mar 03:00 (02:30 does not exist, clocks go forward)"
        " · Mon 29 Mar 02:30 …",
    ]


def test_change_of_clocks_is_told_once(rota: Console) -> None:
    ended = rota(
        *("cron", "explain", "@daily", "--tz", "Pacific/Apia"),
        *("--from", "2011-12-28T00:00:00Z"),
    )

    assert [line for line in ended.lines if "clocks:" in line] == [
        "  clocks: Fri 30 Dec no run at 00:00 (does not exist, clocks go forward)"
    ]


def test_next_times_for_programs_have_their_offset(rota: Console) -> None:
    ended = rota(
        *("cron", "next", "30 2 * * *", "--tz", "Europe/Berlin"),
        *("--from", "2027-03-27T12:00:00+00:00", "--count", "2", "--json"),
    )

    assert ended.json == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]


def test_time_to_start_from_is_on_the_clocks_of_the_zone(rota: Console) -> None:
    ended = rota(
        *("cron", "next", "0 * * * *", "--tz", "Asia/Tokyo"),
        *("--from", "2026-06-01T08:59", "--count", "1"),
    )

    assert ended.out == "2026-06-01T09:00:00+09:00\n"


def test_doubtful_schedule_is_explained_with_a_warning(rota: Console) -> None:
    ended = rota("cron", "explain", "0 2 * *")

    assert ended.code == 0
    assert 'For 02:00 daily: "0 2 * * *"' in ended.err


def test_unknown_zone_and_impossible_time_are_told_together(rota: Console) -> None:
    ended = rota("cron", "next", "61 * * * *", "--tz", "Europe/Belin")

    assert ended.code == 2
    assert "did you mean Europe/Berlin?" in ended.err
    assert "minute 61 does not exist" in ended.err


@pytest.mark.parametrize("command", ["next", "explain"])
def test_schedule_that_begins_with_a_hyphen_is_no_option(rota: Console, command: str) -> None:
    ended = rota("cron", command, "-1 * * * *", "--tz", "Europe/Berlin")

    assert ended.code == 2
    assert '"-1 * * * *": minute "-1" is half a range' in ended.err


@pytest.mark.parametrize("command", ["next", "explain"])
def test_mistyped_option_is_no_schedule(rota: Console, command: str) -> None:
    ended = rota("cron", command, "0 2 * * *", "--tzz", "UTC")

    assert ended.code == 2
    assert "--tzz" in ended.err
    assert "not a schedule" not in ended.err
    assert f"rota cron {command} --help" in ended.err


def test_crontab_becomes_a_valid_job_file(rota: Console) -> None:
    crontab = write("# nightly\n0 3 * * * /opt/backup.sh\n", "crontab")

    ended = rota("import", "crontab", crontab, "-o", "out.yaml", "--tz", "Europe/Berlin")

    assert ended.code == 0
    assert "rota apply out.yaml" in ended.err
    assert "timezone: Europe/Berlin" in Path("out.yaml").read_text()
    assert rota("validate", "out.yaml").code == 0


def test_crontab_in_a_zone_that_is_not_there_is_refused(rota: Console) -> None:
    crontab = write("0 3 * * * /opt/backup.sh\n", "crontab")

    ended = rota("import", "crontab", crontab, "-o", "out.yaml", "--tz", "Europe/Berln")

    assert ended.code == 2
    assert ended.err == (
        'rota: --tz: there is no time zone "Europe/Berln": did you mean Europe/Berlin?\n'
    )
    assert not Path("out.yaml").exists()


def test_zone_of_the_machine_that_has_no_name_is_asked_for(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST")

    ended = rota("import", "crontab", write("0 3 * * * /opt/backup.sh\n", "crontab"))

    assert ended.code == 2
    assert "name that of the crontab: --tz Europe/Berlin" in ended.err


def test_imported_crontab_replaces_a_file_only_by_force(rota: Console) -> None:
    crontab = write("0 3 * * * /opt/backup.sh\n", "crontab")
    Path("jobs.yaml").write_text("mine")

    refused = rota("import", "crontab", crontab, "-o", "jobs.yaml")
    kept = Path("jobs.yaml").read_text()
    replaced = rota("import", "crontab", crontab, "-o", "jobs.yaml", "--force")

    assert (refused.code, kept, replaced.code) == (5, "mine", 0)
    assert "jobs.yaml is already there" in refused.err
    assert "--force" in refused.err
    assert "/opt/backup.sh" in Path("jobs.yaml").read_text()


def test_crontab_line_that_is_left_out_is_told(rota: Console) -> None:
    ended = rota("import", "crontab", write("@reboot /bin/x\n0 3 * * * /bin/y\n", "crontab"))

    assert ended.code == 6
    assert "crontab:1  left out: @reboot" in ended.err
    assert "- run: /bin/y" in ended.out


def test_line_that_keeps_all_others_out_leaves_no_file(rota: Console) -> None:
    lines = ["0 1 * * * root /bin/a", "0 25 * * * /bin/b", "@daily /bin/c"]
    crontab = write("\n".join(lines), "crontab")

    ended = rota("import", "crontab", crontab, "-o", "out.yaml")

    assert (ended.code, ended.out) == (6, "")
    first, second, last = ended.err.splitlines()
    assert first.startswith("crontab:1  root is a user, not a command: nothing is imported")
    assert second.startswith("crontab:2  ")
    assert "25" in second
    assert last == "nothing was imported: 2 lines cannot be taken over"
    assert not Path("out.yaml").exists()


def test_crontab_without_lines_leaves_no_file(rota: Console) -> None:
    ended = rota("import", "crontab", write("# nothing yet\n", "crontab"), "-o", "out.yaml")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "nothing was imported: there is no line to be taken over\n"
    assert not Path("out.yaml").exists()


def test_user_column_of_a_system_crontab_is_noticed(rota: Console) -> None:
    crontab = write("17 * * * * root run-parts /etc/cron.hourly\n", "crontab")

    noticed, denied = (rota("import", "crontab", crontab, *word) for word in ([], ["--no-system"]))

    assert noticed.code == 0
    assert "crontab:1  warning: every line names a user" in noticed.err
    assert "- name: run-parts" in noticed.out
    assert "- name: root" in denied.out
    assert rota("import", "crontab", crontab, "--system").out == noticed.out


def test_schema_is_the_job_file_s(rota: Console) -> None:
    assert rota("schema").json["title"] == "Rota job file"


def test_setting_is_shown_with_where_it_comes_from(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SLOTS", "7")

    ended = rota("config", "show", "--origin", "--json")

    slots = next(each for each in ended.json if each["name"] == "slots")
    assert (slots["value"], slots["origin"]) == ("7", "ROTA_SLOTS")


def test_token_is_never_shown_with_the_settings(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", "very-secret")

    assert "very-secret" not in rota("config", "show").out


def test_bad_setting_is_told_with_its_origin(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SLOTS", "none")

    ended = rota("config", "check")

    assert ended.code == 2
    assert "ROTA_SLOTS" in ended.err


def test_settings_files_are_listed_strongest_first(rota: Console, tmp_path: Path) -> None:
    Path("rota.toml").write_text("slots = 2\n")

    ended = rota("config", "path")

    assert ended.lines[0] == str(tmp_path / "rota.toml")
    assert ended.lines[-1].endswith("(not there)")


def test_first_token_needs_no_server(rota: Console, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()

    ended = rota("token", "create", "--name", "ci", "--role", "viewer")

    assert ended.code == 0
    assert ended.out.startswith("rotat_")
    assert "shown this once" in ended.err


def test_token_for_a_project_that_is_not_there_is_not_made(rota: Console, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()

    ended = rota("token", "create", "ci", "--role", "viewer", "--project", "etl")

    assert (ended.code, 'there is no project "etl"' in ended.err) == (3, True)


def test_token_of_the_installation_is_made_without_a_server(rota: Console, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()

    made = rota("token", "create", "ci", "--role", "admin", "--installation", "--json").json

    assert (made["project"], made["verbs"]) == (None, None)


def test_worker_without_a_server_says_what_to_start(rota: Console) -> None:
    ended = rota("worker")

    assert ended.code == 7
    assert "rota up" in ended.err


def test_server_does_not_start_with_a_bad_file(rota: Console) -> None:
    ended = rota("up", "--apply", write(BAD_FILE))

    assert ended.code == 6
    assert "jobs.yaml:3:5  unknown key" in ended.err
    assert not Path("home").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_back_for_live_names(rota: Console, shell: str) -> None:
    ended = rota("completion", shell)

    assert ended.code == 0
    assert "__complete" in ended.out
