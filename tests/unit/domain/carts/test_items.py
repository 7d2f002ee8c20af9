from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from rota.domain.carts import items as item_files
from rota.domain.carts.definition import CartItem, ItemsFile
from rota.domain.carts.items import MAX_LINE, Demands, read_items
from rota.domain.errors import Invalid
from rota.domain.spec import JobSpec
from tests.unit.domain.jobfile.jobfiles import spec_of

CSV = ItemsFile("fleet.csv")
JSON = ItemsFile("fleet.json")
MEGABYTE = 1_000_000


def upgrade() -> JobSpec:
    inputs = {
        "host": {"default": "localhost"},
        "replicas": {"type": "integer", "default": 1},
        "ratio": {"type": "number", "default": 0.5},
        "force": {"type": "boolean", "default": False},
    }
    return spec_of(name="upgrade", inputs=inputs)


def demands(*specs: JobSpec, job: str = "upgrade", order_is_written: bool = False) -> Demands:
    return Demands(job, order_is_written, {spec.name: spec for spec in specs})


def read(text: str, file: ItemsFile = CSV, wanted: Demands | None = None) -> list[CartItem]:
    lines = text.splitlines(keepends=True)
    return list(read_items(lines, file, demands() if wanted is None else wanted))


def errors_in(text: str, file: ItemsFile = CSV, wanted: Demands | None = None) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read(text, file, wanted)
    return [str(problem) for problem in caught.value.problems]


def as_lines(*items: object) -> str:
    return "".join(f"{json.dumps(item)}\n" for item in items)


def test_a_table_has_keys_numbers_and_inputs() -> None:
    assert read("key,order,host\na,10,db-1\nb,20,db-2\n") == [
        CartItem("a", 10, {"host": "db-1"}),
        CartItem("b", 20, {"host": "db-2"}),
    ]


def test_a_table_has_columns_for_what_items_need() -> None:
    assert read("key,needs.worker,needs.disk,host\na,web-1,,db-1\nb,,ssd,\n") == [
        CartItem("a", inputs={"host": "db-1"}, needs={"worker": "web-1"}),
        CartItem("b", needs={"disk": "ssd"}),
    ]


def test_a_column_of_a_need_has_the_name_of_a_label() -> None:
    assert "needs" in errors_in("key,needs.\na,web-1\n")[0]


def test_lines_of_json_have_needs() -> None:
    text = as_lines({"key": "a", "needs": {"worker": "web-1"}})

    assert read(text, ItemsFile("fleet.jsonl")) == [CartItem("a", needs={"worker": "web-1"})]


def test_columns_may_stand_in_any_order_and_cells_be_empty() -> None:
    assert read("host,order,key\ndb-1,,a\n,,b\n") == [
        CartItem("a", inputs={"host": "db-1"}),
        CartItem("b"),
    ]


def test_what_spreadsheets_write_is_read() -> None:
    text = '\ufeffkey, host\r\n\r\na, "x, ""y"""\r\n,\r\n b ,z\r\n'

    assert read(text) == [
        CartItem("a", inputs={"host": 'x, "y"'}),
        CartItem("b", inputs={"host": "z"}),
    ]


def test_a_quoted_cell_may_have_several_lines() -> None:
    [first, second] = read('key,host\na,"x\ny"\nb,z')

    assert first.inputs == {"host": "x\ny"}
    assert second.key == "b"


def test_cells_take_the_types_of_the_inputs_of_the_job() -> None:
    text = "key,host,replicas,ratio,force\na,1,2,3,true\n"

    assert read(text)[0].inputs == {"host": "1", "replicas": "2", "ratio": "3", "force": "true"}
    assert read(text, wanted=demands(upgrade()))[0].inputs == {
        "host": "1",
        "replicas": 2,
        "ratio": 3,
        "force": True,
    }


def test_defaults_of_the_job_stay_with_the_job() -> None:
    assert read("key\na\n", wanted=demands(upgrade())) == [CartItem("a")]


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ("key;order;host", "the columns are separated by semicolons — separate them by commas"),
        ("key\torder\thost", "the columns are separated by tabs — separate them by commas"),
        ("name,order", 'there is no column "key" — the first line names the columns'),
        ("Key,order", 'there is no column "key" — write "Key" in small letters'),
        ("key,host,host", 'there are 2 columns "host"'),
        ("key,,host", "a column has no name"),
        ("key,hots", 'job upgrade has no input "hots" — did you mean "host"?'),
        ("key,oder", 'job upgrade has no input "oder" — did you mean "order"?'),
    ],
)
def test_a_wrong_header_is_told_once(header: str, error: str) -> None:
    [found] = errors_in(f"{header}\na\nb\n", wanted=demands(upgrade()))

    assert found.startswith(f"1  {error}")


def test_columns_must_be_names_of_variables_when_the_job_is_not_known() -> None:
    [error] = errors_in("key,my host\na,b\n")

    assert error.startswith('1  column "my host" must be letters, digits and underscores')


def test_every_bad_row_is_told_with_its_line() -> None:
    text = 'key,order,replicas\n,1,\nb,x,\nc,3,many\nd,4\n"e"e,5,\nf,6,,\ng,7,1\nh,0,\n'

    errors = errors_in(text, wanted=demands(upgrade()))

    assert [error.split(" — ")[0] for error in errors] == [
        '2  item has no "key"',
        '3  order must be a whole number from 1 to 1,000,000,000, not "x"',
        '4  input "replicas" must be a whole number, not "many"',
        "5  the line has 2 cells, but the header 3",
        "6  not valid CSV: ',' expected after '\"'",
        "7  the line has 4 cells, but the header 3",
        "9  order must be a whole number from 1 to 1,000,000,000, not 0",
    ]


@pytest.mark.parametrize("order", ["1.0", "1e3", "٣", "-1", "9" * 30])
def test_an_order_that_is_no_usable_integer_is_refused(order: str) -> None:
    [error] = errors_in(f"key,order\na,{order}\n")

    assert error.startswith("2  order must be a whole number from 1 to 1,000,000,000")


@pytest.mark.parametrize("end", ["", 'c,"d\n'], ids=["never", "by the next quote"])
def test_an_open_quote_is_told_at_the_line_where_it_opens(end: str) -> None:
    [error] = errors_in(f'key,host\na,b\nx,"open\nb,c\n{end}')

    assert error.startswith("3  a quote is opened in this line, but not closed properly")


def test_a_repeated_key_is_told_with_both_lines() -> None:
    assert errors_in("key\na\nb\na\n") == ['4  key "a" is already in line 2']


def test_keys_repeated_in_one_line_are_found() -> None:
    assert errors_in('[{"key": "a"}, {"key": "a"}]', JSON) == ['1  key "a" is already in line 1']


def test_numbers_at_some_items_only_are_refused() -> None:
    assert errors_in("key,order\na,1\nb,\nc,3\n") == [
        "3  the item has no order, unlike line 2 — give every item a number, or none"
    ]
    assert errors_in("key,order\na,\nb,2\n") == [
        "3  the item has an order, unlike line 2 — give every item a number, or none"
    ]


def test_numbers_are_refused_when_the_cart_assigns_them() -> None:
    wanted = demands(order_is_written=True)

    [error] = errors_in("key,order\na,1\nb,2\n", wanted=wanted)

    assert error.startswith("2  the cart's order assigns the numbers, but items have some")
    assert read("key,order\na,\n", wanted=wanted) == [CartItem("a")]


@pytest.mark.parametrize("file", [CSV, JSON], ids=["csv", "json"])
@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"], ids=["empty", "blank", "only a mark"])
def test_a_file_without_items_is_refused(file: ItemsFile, text: str) -> None:
    assert errors_in(text, file) == ["1  there are no items — a cart needs at least one"]


@pytest.mark.parametrize(("text", "file"), [("key,host\n", CSV), ("[]", JSON), ("[\n]\n", JSON)])
def test_a_frame_without_items_is_refused(text: str, file: ItemsFile) -> None:
    assert errors_in(text, file) == ["1  there are no items — a cart needs at least one"]


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "many lines"])
def test_json_may_be_a_list(indent: int | None) -> None:
    items = [
        {"key": "a", "order": 1, "with": {"text": 'x]},{["\\', "list": 2}},
        {"key": "b", "order": 1, "job": "other"},
    ]

    assert read(json.dumps(items, indent=indent), JSON) == [
        CartItem("a", 1, {"text": 'x]},{["\\', "list": 2}),
        CartItem("b", 1, job="other"),
    ]


def test_json_may_be_one_item_per_line() -> None:
    text = "\ufeff\n" + as_lines({"key": "a"}) + "\r\n" + as_lines({"key": "b", "with": {"n": 1}})

    assert read(text, JSON) == [CartItem("a"), CartItem("b", inputs={"n": 1})]


def test_every_bad_item_in_json_is_told_with_its_line() -> None:
    text = as_lines({"key": "a", "wiht": {}}, 7, {"order": 1}, {"key": "b", "with": {"x": [1]}})
    text += '{"key": "c"\n{"key": "d", "key": "e"}\n' + '{"key":' * 100_000 + "\n"

    assert [error.split(" — ")[0] for error in errors_in(text, JSON)] == [
        '1  unknown key "wiht" in item',
        "2  item must be a mapping, not 7",
        '3  item has no "key"',
        "4  x must be text, a number, true or false, or a file, not a list",
        "5  not valid JSON: Expecting ',' delimiter",
        '6  not valid JSON: key "key" is there twice',
        "7  not valid JSON: nested too deeply",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[\n{"key": "a"},\n]', "3  there is no item between two commas, or after the last one"),
        ('[\n{"key": "a"}\n', '2  the list is not closed by a "]"'),
        ('[{"key": "a"}]\n{"key": "b"}', "2  something follows the end of the list"),
        ('[{"key": "a"}],', "1  something follows the end of the list"),
        ('[\n{"key": "a"}\n{"key": "b"}]', "2  not valid JSON: Extra data"),
        ('[\n\n{"key":\n"a}]', '4  the list is not closed by a "]"'),
    ],
)
def test_a_broken_list_is_told_with_its_line(text: str, error: str) -> None:
    assert errors_in(text, JSON)[-1].startswith(error)


def test_inputs_are_compared_with_the_job_that_the_item_names() -> None:
    other = spec_of(name="other", inputs={"size": {"type": "integer"}})
    text = as_lines(
        {"key": "a", "job": "other", "with": {"size": "3"}},
        {"key": "b", "job": "other", "with": {"siez": 3}},
        {"key": "c", "with": {"host": "x"}},
        {"key": "d", "job": "unknown", "with": {"any": 1}},
        {"key": "e", "with": {"host": [1]}},
    )

    assert errors_in(text, JSON, demands(upgrade(), other)) == [
        '2  job other has no input "siez" — did you mean "size"?',
        '2  input "size" must be given',
        "5  host must be text, a number, true or false, or a file, not a list",
    ]


def test_an_item_needs_a_job_when_the_cart_has_none() -> None:
    text = as_lines({"key": "a", "job": "x"}, {"key": "b"})

    assert errors_in(text, JSON, demands(job="")) == [
        '2  the item has no "job", and neither has the cart'
    ]


def test_of_very_many_faults_the_first_are_told_and_the_others_counted() -> None:
    errors = errors_in("key,order\n" + "".join(f"k{n},x\n" for n in range(1_234)))

    assert len(errors) == 101
    assert errors[99].startswith("101  order must be")
    assert errors[100] == "and 1,134 more"


def test_good_items_are_yielded_while_reading() -> None:
    items = read_items(iter(["key\n", "a\n", "b,c\n"]), CSV, demands())

    assert next(items) == CartItem("a")
    with pytest.raises(Invalid):
        next(items)


class Counted:
    """Lines of a file that remember how many of them were asked for."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.asked = 0
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.asked += 1
            yield line


def refusal_of(lines: Iterable[str], file: ItemsFile = CSV) -> str:
    """The last error of lines that are too much, while nothing of them is kept."""
    with pytest.raises(Invalid) as caught:
        for _ in read_items(lines, file, demands()):
            pass
    return caught.value.problems[-1].message


def test_reading_stops_at_one_item_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_files, "MAX_ITEMS", 10)
    lines = Counted(["key\n", *(f"k{number}\n" for number in range(100))])

    assert refusal_of(lines) == "there are more than 10 items"
    assert lines.asked == 12


@pytest.mark.parametrize("file", [CSV, JSON], ids=["csv", "json"])
def test_reading_stops_at_a_line_that_is_too_long(file: ItemsFile) -> None:
    lines = Counted(["x" * (MAX_LINE + 1), "y"])

    assert refusal_of(lines, file) == "the line is longer than 1,000,000 characters"
    assert lines.asked == 1


def test_reading_stops_at_an_item_that_is_too_long() -> None:
    lines = Counted(["[{\n", *[f'"{"x" * 1_000}": 1,\n'] * 300_000])

    assert refusal_of(lines, JSON) == "the item is longer than 1,000,000 characters"
    assert lines.asked < 1_000


def test_a_file_of_300_megabytes_is_refused_in_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(item_files, "MAX_TEXT", 8 * MEGABYTE)
    rows = (f"k{number},{'x' * 60_000}\n" for number in range(5_000))
    lines = Counted(row for part in (["key,host\n"], rows) for row in part)

    tracemalloc.start()
    try:
        refusal = refusal_of(lines)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert refusal == "the file is longer than 8,000,000 characters"
    assert lines.asked < 140
    assert peak < MEGABYTE


def test_an_endless_open_quote_is_refused_in_little_memory() -> None:
    lines = Counted(["key,host\n", 'a,"open\n', *["x" * 1_000 + "\n"] * 300_000])

    assert "not closed" in refusal_of(lines)
    assert lines.asked < 200
