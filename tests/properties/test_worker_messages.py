"""Whatever a worker and a server tell one another arrives as it was sent."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from rota.clock import SystemClock
from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Invalid, Unavailable
from rota.domain.output import CHUNK_LIMIT
from rota.domain.run import AttemptResult
from rota.domain.spec import (
    Delivery,
    Input,
    InputType,
    JobSpec,
    JobType,
    Misfire,
    Retry,
    Schedule,
    Step,
)
from rota.link import grpc_attempts
from rota.link import grpc_messages as messages
from rota.ports.work import (
    MAX_AMOUNT,
    MAX_FENCE,
    MAX_LEASE,
    MAX_NUMBER,
    MAX_SLOTS,
    MAX_TOTAL,
    MIN_LEASE,
    RUNNING,
    Beat,
    BeatAnswer,
    Cancel,
    ChunkMeta,
    Dispatch,
    EndBatch,
    Fence,
    Hello,
    Move,
    Offer,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    Report,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    StepNote,
    StepOutcome,
    Watch,
    Welcome,
    Witness,
    Work,
    WorkBatch,
)
from rota.worker.attempts import Attempts
from rota.worker.spool import OutputSpool

NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=9
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
INSTANTS = st.integers(0, 4_102_444_800_000_000)
STREAMS = st.integers(1, 2**63 - 1)
TOTALS = st.integers(0, MAX_TOTAL)
SHARES = st.integers(0, CHUNK_LIMIT)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
CODES = st.none() | st.integers(-(2**31), 2**31 - 1)
SECONDS = st.floats(0, 2**40)
ATTEMPTS = st.integers(0, MAX_NUMBER)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5
)
FENCE_NUMBERS = st.integers(0, MAX_FENCE)
FENCES = st.builds(Fence, NAMES, FENCE_NUMBERS)
BATCHES = st.lists(FENCES, max_size=3).map(tuple)
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=400))
SPECS = st.builds(
    JobSpec,
    name=NAMES,
    type=st.sampled_from(JobType),
    labels=st.dictionaries(NAMES, TEXTS),
    schedule=st.none()
    | st.builds(
        Schedule,
        st.lists(TEXTS).map(tuple),
        starts=st.none() | st.datetimes(timezones=st.just(UTC)),
        misfire=st.builds(Misfire, within=st.none() | DURATIONS),
    ),
    steps=st.lists(
        st.builds(
            Step,
            TEXTS,
            TEXTS | st.lists(TEXTS).map(tuple),
            env=st.dictionaries(NAMES, TEXTS),
            timeout=st.none() | DURATIONS,
        )
    ).map(tuple),
    inputs=st.dictionaries(
        NAMES, st.builds(Input, st.sampled_from(InputType), st.none() | st.booleans() | TEXTS)
    ),
    delivery=st.sampled_from(Delivery),
    timeout=st.none() | DURATIONS,
    grace=DURATIONS,
    retry=st.builds(Retry, exit_codes=st.none() | st.frozensets(st.integers(0, 255))),
)
STEP_RESULTS = ["completed", "failed", "timed_out", "cancelled", "skipped"]
STEPS = st.builds(
    StepOutcome,
    TEXTS,
    st.sampled_from(STEP_RESULTS),
    CODES,
    CODES,
    SECONDS,
    st.integers(0, 99),
    SECONDS,
    TOTALS,
    st.just("") | NAMES,
    INSTANTS,
    TOTALS,
    TOTALS,
)
RUNNING_STEPS = STEPS | st.builds(StepOutcome, TEXTS, st.just(RUNNING), started_at=INSTANTS)
OUTCOMES = st.builds(
    Outcome,
    run=NAMES,
    number=FENCE_NUMBERS,
    result=st.sampled_from(AttemptResult).map(str),
    started_at=INSTANTS,
    ended_at=INSTANTS,
    exit_code=CODES,
    signal=CODES,
    message=TEXTS,
    outputs=JSON,
    steps=st.lists(STEPS, max_size=3).map(tuple),
    cpu_seconds=SECONDS,
    max_memory_bytes=TOTALS,
    output=st.binary(),
    output_bytes=TOTALS,
    output_lines=TOTALS,
    truncated=st.booleans(),
    cause=st.just("") | NAMES,
)


@st.composite
def end_batches(draw: st.DrawFn) -> EndBatch:
    runs = draw(st.lists(NAMES, max_size=4))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return [draw(values) for _ in runs]

    positions = st.sets(st.integers(0, len(runs) - 1)) if runs else st.just(set())
    outputs = {at: msgspec.json.encode(draw(JSON)).decode() for at in draw(positions)}
    return EndBatch(
        runs, column(FENCE_NUMBERS), column(INSTANTS), column(INSTANTS), column(TOTALS), outputs
    )


MILLISECONDS = st.integers(0, 4_102_444_800_000)
CHUNKS = st.builds(
    OutputChunk,
    NAMES,
    FENCE_NUMBERS,
    st.builds(ChunkMeta, ATTEMPTS, TOTALS, SHARES, SHARES, MILLISECONDS, MILLISECONDS),
    st.binary(),
)
WITNESSES = st.none() | st.builds(Witness, NAMES, TOTALS, TOTALS)
HELLOS = st.builds(
    Hello,
    worker=NAMES,
    pool=NAMES,
    slots=st.integers(1, MAX_SLOTS),
    labels=st.dictionaries(NAMES, st.just("") | NAMES),
    resources=st.dictionaries(NAMES, st.integers(0, MAX_AMOUNT)),
    functions=st.lists(NAMES).map(tuple),
    guard_mode=TEXTS,
    version=TEXTS,
    resumes=st.just("") | NAMES,
    succeeds=st.just("") | NAMES,
    offers=st.lists(st.builds(Offer, NAMES, NAMES, TEXTS), max_size=3).map(tuple),
    witness=WITNESSES,
)
WORK = st.builds(
    Work,
    NAMES,
    FENCE_NUMBERS,
    st.sampled_from(["j_1", "j_2"]),
    st.integers(1, 2),
    INSTANTS,
    st.none() | st.dictionaries(TEXTS, JSON),
    st.none() | INSTANTS,
)
CART_WORK = st.builds(
    lambda work, cart, item: msgspec.structs.replace(work, cart=cart, item=item),
    WORK,
    NAMES,
    st.none() | NAMES,
)
WORK_BATCHES = st.lists(WORK | CART_WORK, max_size=5).map(WorkBatch.of)
ORDERS = (
    st.builds(
        Dispatch,
        WORK_BATCHES,
        st.lists(st.builds(SpecEntry, NAMES, ATTEMPTS, SPECS), max_size=3).map(tuple),
        TOTALS,
    )
    | st.builds(Cancel, BATCHES)
    | st.builds(Watch, st.lists(NAMES).map(tuple))
    | st.builds(Move)
)
BOTH_WAYS: dict[str, tuple[Any, Any, Any]] = {
    "hello": (HELLOS, messages.hello_message, messages.hello_from),
    "beat": (
        st.builds(Beat, BATCHES, st.booleans(), TOTALS, TOTALS, TEXTS, BATCHES),
        messages.beat_message,
        messages.beat_from,
    ),
    "starts": (
        st.lists(st.builds(Start, NAMES, FENCE_NUMBERS, INSTANTS), max_size=3),
        messages.starts_message,
        messages.starts_from,
    ),
    "report": (
        st.builds(Report, end_batches(), st.lists(OUTCOMES, max_size=3).map(tuple)),
        messages.report_message,
        messages.report_from,
    ),
    "chunk": (CHUNKS, messages.chunk_message, messages.chunk_from),
    "progress": (
        st.builds(Progress, NAMES, FENCE_NUMBERS, NUMBERS, st.none() | NUMBERS, TEXTS),
        grpc_attempts.progress_message,
        grpc_attempts.progress_from,
    ),
    "note": (
        st.builds(
            StepNote,
            NAMES,
            FENCE_NUMBERS,
            INSTANTS,
            ATTEMPTS,
            st.lists(RUNNING_STEPS, max_size=3).map(tuple),
            TOTALS,
            TOTALS,
            TEXTS,
        ),
        grpc_attempts.note_message,
        grpc_attempts.note_from,
    ),
    "welcome": (
        st.builds(
            Welcome,
            NAMES,
            st.floats(MIN_LEASE, MAX_LEASE),
            INSTANTS,
            STREAMS,
            st.lists(NAMES, max_size=3).map(tuple),
            WITNESSES,
        ),
        messages.welcome_message,
        messages.welcome_from,
    ),
    "beat answer": (
        st.builds(BeatAnswer, st.booleans(), INSTANTS, BATCHES, BATCHES, st.booleans(), WITNESSES),
        messages.beat_answer_message,
        messages.beat_answer_from,
    ),
    "start answer": (
        st.builds(StartAnswer, BATCHES, BATCHES, BATCHES),
        messages.start_answer_message,
        messages.start_answer_from,
    ),
    "report answer": (
        st.builds(ReportAnswer, BATCHES, BATCHES),
        messages.report_answer_message,
        messages.report_answer_from,
    ),
}


@pytest.mark.parametrize("kind", BOTH_WAYS)
@given(data=st.data())
def test_values_arrive_as_they_were_sent(kind: str, data: st.DataObject) -> None:
    values, message_of, value_from = BOTH_WAYS[kind]
    value = data.draw(values)

    sent = message_of(value)
    arrived = type(sent).FromString(sent.SerializeToString())

    assert value_from(arrived) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Beat, pb.Beat),
        (Offer, pb.Offer),
        (Witness, pb.Witness),
        (StepOutcome, pb.StepOutcome),
        (Report, pb.Report),
        (Welcome, pb.Welcome),
        (BeatAnswer, pb.BeatAnswer),
        (StartAnswer, pb.StartAnswer),
        (ReportAnswer, pb.ReportAnswer),
        (Move, pb.Move),
        (SpecEntry, pb.SpecEntry),
    ],
)
def test_no_field_of_a_value_is_forgotten(value: Any, message: Any) -> None:
    fields = [field.name.removesuffix("_json") for field in message.DESCRIPTOR.fields]

    assert fields == list(value.__struct_fields__)


def test_an_attempt_that_has_ended_has_no_step_that_goes_on() -> None:
    step = StepOutcome("build", RUNNING)
    report = Report(outcomes=(Outcome("r_1", 1, AttemptResult.FAILED, 1, 2, steps=(step,)),))

    with pytest.raises(Invalid, match="a step goes on"):
        messages.report_from(messages.report_message(report))


@given(ORDERS)
def test_orders_arrive_as_they_were_sent(order: Order) -> None:
    [message] = messages.order_messages(order)

    arrived = messages.order_from(pb.FromServer.FromString(message.SerializeToString()))

    assert arrived == order


def test_a_spec_of_a_later_version_is_left_out_and_nothing_else() -> None:
    batch = WorkBatch.of([Work("r_1", 1, "j_new", 1, 0)])
    spec = SpecEntry("j_1", 1, JobSpec("tidy"))
    [message] = messages.order_messages(Dispatch(batch, (spec,)))
    message.dispatch.specs.add(
        job_id="j_new", job_version=1, spec_json=b'{"name":"x","delivery":"quantum"}'
    )

    assert messages.order_from(message) == Dispatch(batch, (spec,))


@pytest.mark.parametrize("nested", [{"specs": 1}, {"inputs": 1}], ids=["spec", "inputs"])
def test_what_is_nested_too_deeply_costs_at_most_the_connection(nested: dict[str, int]) -> None:
    message = pb.Dispatch(runs=["r_1"], fences=[1], due_at=[0], jobs=[pb.JobVersion(job_id="j_1")])
    if "specs" in nested:
        message.specs.add(job_id="j_1", spec_json=NESTED.encode())
    else:
        message.inputs_json[0] = NESTED

    _take(message)


def test_a_long_dispatch_travels_in_pieces_specs_first_that_count_on() -> None:
    inputs = {"blob": "x" * (messages.PIECE // 3)}
    works = [Work(f"r_{number}", 1, "j_1", 1, 0, inputs) for number in range(20)]
    specs = tuple(SpecEntry(f"j_{number}", 1, JobSpec("tidy")) for number in range(2))

    parts = list(messages.order_messages(Dispatch(WorkBatch.of(works), specs, first=5)))

    arrived = [messages.order_from(part) for part in parts]
    assert arrived[0] == Dispatch(WorkBatch(), specs)
    assert [work for part in arrived[1:] for work in _batch_of(part).works()] == works
    firsts = [part.first for part in arrived[1:] if isinstance(part, Dispatch)]
    lengths = [len(_batch_of(part)) for part in arrived[1:]]
    assert firsts == [5 + sum(lengths[:n]) for n in range(len(lengths))]
    assert all(part.ByteSize() <= messages.PIECE + 100 for part in parts)


def _batch_of(order: Order | None) -> WorkBatch:
    assert isinstance(order, Dispatch)
    return order.batch


def _take(message: pb.Dispatch) -> None:
    """Do with a dispatch what a worker does; it connects anew if there is no sense in it."""
    order = messages.order_from(pb.FromServer(dispatch=message))
    assert isinstance(order, Dispatch)
    with suppress(Unavailable):
        Attempts(SystemClock(), OutputSpool(Path("unused"))).accept(order)


READERS: dict[Any, Any] = {
    pb.Hello: messages.hello_from,
    pb.Beat: messages.beat_from,
    pb.Starts: messages.starts_from,
    pb.Report: messages.report_from,
    pb.OutputChunk: messages.chunk_from,
    pb.Progress: grpc_attempts.progress_from,
    pb.StepNote: grpc_attempts.note_from,
    pb.Welcome: messages.welcome_from,
    pb.BeatAnswer: messages.beat_answer_from,
    pb.StartAnswer: messages.start_answer_from,
    pb.ReportAnswer: messages.report_answer_from,
    pb.Refusal: messages.refusal_from,
    pb.FromServer: messages.order_from,
    pb.Dispatch: _take,
}
NESTED = '{"x":' + "[" * 100_000
MESSAGES = st.sampled_from(list(READERS))


@st.composite
def any_message(draw: st.DrawFn, kinds: st.SearchStrategy[Any] = MESSAGES) -> Any:
    """A message with any of its fields set to something, sensible or not."""
    message = draw(kinds)()
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _fill(draw, message, field)
    return message


def _fill(draw: st.DrawFn, message: Any, field: FieldDescriptor) -> None:
    place = getattr(message, field.name)
    if field.message_type is None:
        values = ANYTHING[field.type]
        if field.is_repeated:
            place.extend(draw(st.lists(values, max_size=3)))
        else:
            setattr(message, field.name, draw(values))
    elif field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        if value.message_type is None:
            place.update(
                draw(st.dictionaries(ANYTHING[key.type], ANYTHING[value.type], max_size=2))
            )
    elif field.is_repeated:
        place.append(draw(any_message(st.just(type(place.add())))))
    else:
        place.CopyFrom(draw(any_message(st.just(type(place)))))


ANYTHING: dict[int, st.SearchStrategy[Any]] = {  # by the type of the field
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary() | st.just(NESTED.encode()),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_ENUM: st.integers(-5, 50),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_STRING: st.text(st.characters(codec="utf-8")) | st.just(NESTED),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
}


@given(any_message())
def test_nonsense_is_refused_and_nothing_worse(message: Any) -> None:
    with suppress(Invalid):
        READERS[type(message)](message)
