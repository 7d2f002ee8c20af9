from __future__ import annotations

from textwrap import dedent

import pytest

from rota.domain.jobfile import read_file, to_yaml
from tests.unit.domain.jobfile.jobfiles import file_of, job, read


def test_export_reads_like_a_file_written_by_hand() -> None:
    text = to_yaml(
        [
            {
                "name": "backup",
                "project": "payments",
                "schedule": "*/5 * * * *",
                "steps": [{"name": "dump", "run": "set -e\n./dump.sh\n"}, {"run": ["ls", "-l"]}],
            }
        ]
    )

    assert text == dedent("""\
        project: payments
        jobs:
          - name: backup
            schedule: '*/5 * * * *'
            steps:
              - name: dump
                run: |
                  set -e
                  ./dump.sh
              - run:
                  - ls
                  - -l
        """)


def test_export_of_several_projects_keeps_each() -> None:
    file = read(file_of(job(name="a", project="one"), job(name="b", project="two")))

    again = read_file(to_yaml(entry.document for entry in file.jobs), name="jobs")

    assert again.jobs[0].document == file.jobs[0].document
    assert again.jobs[1].document == file.jobs[1].document


def test_export_of_nothing_is_a_file() -> None:
    assert read_file(to_yaml([]), name="jobs").jobs == ()


@pytest.mark.parametrize(
    "text",
    [
        "yes", "no", "null", "~", "true", "1e3", "0o17", "0x1F", "012", "1_000", "12:30", ".5", "",
        "2026-01-01", " leading", "trailing ", "a: b", "# hash", "- dash", "*star", "&and", "!bang",
        "%percent", "@at", "`tick", "'single'", '"double"', "a\nb", "a\nb\n", "a\n\n\nb\n\n", "\n",
        "  indented\nless", "a \nb", "a\tb\n", "\ttab\nx", "é — \U0001f600\n", "\x85\u2028\nx",
        "<<", "=", "a\r\nb", "x" * 500, "word " * 100, "\ufeffbom", "---\na", "...\n",
    ],
    ids=ascii,
)  # fmt: skip
def test_any_text_survives_export(text: str) -> None:
    file = read(file_of(job(description=text, steps=[{"run": text or "x", "env": {"A": text}}])))
    document = file.jobs[0].document

    exported = to_yaml([document])

    assert read_file(exported, name="jobs").jobs[0].document == document
