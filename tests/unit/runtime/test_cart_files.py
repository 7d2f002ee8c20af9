from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.carts.items import MAX_LINE
from rota.runtime.cart_files import CheckedItems, check_item_files
from tests.unit.domain.jobfile.jobfiles import cart, file_of, job, read


def check(folder: Path, *paths: str, **fields: object) -> list[CheckedItems]:
    """The files of items of one cart each, for a job with an input `host`."""
    carts = [
        cart(name=f"cart-{number}", items=None, items_from=path, **fields)
        for number, path in enumerate(paths, 1)
    ]
    text = file_of(job(inputs={"host": {"default": "x"}}), carts=carts)
    return list(check_item_files(read(text), folder))


def test_files_lie_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "fleet.csv").write_text("key,host\na,b\nc,d\n")
    (tmp_path / "fleet.jsonl").write_text('{"key": "a"}\n')

    found = check(tmp_path, "sub/fleet.csv", str(tmp_path / "fleet.jsonl"))

    assert found == [
        CheckedItems(str(tmp_path / "sub" / "fleet.csv"), "cart-1", 2),
        CheckedItems(str(tmp_path / "fleet.jsonl"), "cart-2", 1),
    ]


def test_items_are_compared_with_the_jobs_of_the_file_and_the_order_of_the_cart(
    tmp_path: Path,
) -> None:
    (tmp_path / "fleet.csv").write_text("key,hots\na,b\n")
    (tmp_path / "numbered.csv").write_text("key,order\na,1\n")

    wrong_input, numbered = check(tmp_path, "fleet.csv", "numbered.csv", order="serial")

    assert wrong_input.verdict == "the file of items has 1 error"
    assert [str(it) for it in wrong_input.problems] == [
        '1  job tidy has no input "hots" — did you mean "host"?'
    ]
    assert "assigns the numbers" in numbered.problems[0].message


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the file cannot be read: No such file or directory"),
        (b"key\n\xff\xfe\n", "the file is not UTF-8 text — save it as UTF-8"),
        (b"x" * 3 * MAX_LINE, "1  the line is longer than 1,000,000 characters"),
    ],
    ids=["missing", "binary", "one endless line"],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "fleet.csv").write_bytes(content)

    [found] = check(tmp_path, "fleet.csv")

    assert not found.is_valid
    assert found.items == 0
    assert str(found.problems[0]).startswith(problem)


def test_carts_without_such_a_file_have_nothing_to_check(tmp_path: Path) -> None:
    text = file_of(job(), carts=[cart(), cart(name="w", items=None, items_from={"workers": {}})])

    assert list(check_item_files(read(text), tmp_path)) == []
