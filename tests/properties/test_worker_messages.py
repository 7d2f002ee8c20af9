"""Whatever a worker and a server tell one another arrives as it was sent."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, timedelta
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Invalid
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
from rota.link import grpc_messages as answers
from rota.link import grpc_messages as requests
from rota.ports.work import (
    MAX_AMOUNT,
    MAX_NUMBER,
    MAX_TOTAL,
    Beat,
    BeatAnswer,
    Cancel,
    ChunkMeta,
    Dispatch,
    Fence,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    StepOutcome,
    Watch,
    Welcome,
    Work,
)

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
FENCES = st.builds(Fence, NAMES, ATTEMPTS)
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
    StepOutcome, TEXTS, st.sampled_from(STEP_RESULTS), CODES, CODES, SECONDS, st.integers(0, 99)
)
REPORTED = [result for result in AttemptResult if result is not AttemptResult.LOST]
OUTCOMES = st.builds(
    Outcome,
    run=NAMES,
    attempt=ATTEMPTS,
    result=st.sampled_from(REPORTED).map(str),
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
)
MILLISECONDS = st.integers(0, 4_102_444_800_000)
CHUNKS = st.builds(
    OutputChunk,
    NAMES,
    ATTEMPTS,
    st.builds(ChunkMeta, ATTEMPTS, TOTALS, SHARES, SHARES, MILLISECONDS, MILLISECONDS),
    st.binary(),
)
HELLOS = st.builds(
    Hello,
    worker=NAMES,
    pool=NAMES,
    slots=st.integers(1, requests.MAX_SLOTS),
    labels=st.dictionaries(NAMES, st.just("") | NAMES),
    resources=st.dictionaries(NAMES, st.integers(0, MAX_AMOUNT)),
    functions=st.lists(NAMES).map(tuple),
    guard_mode=TEXTS,
    version=TEXTS,
    resumes=st.just("") | NAMES,
    succeeds=st.just("") | NAMES,
)
WORK = st.builds(
    Work,
    NAMES,
    ATTEMPTS,
    NAMES,
    ATTEMPTS,
    INSTANTS,
    st.none() | st.dictionaries(TEXTS, JSON),
    st.none() | INSTANTS,
)
ORDERS = (
    st.builds(
        Dispatch,
        st.lists(WORK, max_size=3).map(tuple),
        st.lists(st.builds(SpecEntry, NAMES, ATTEMPTS, SPECS), max_size=3).map(tuple),
        TOTALS,
    )
    | st.builds(Cancel, BATCHES)
    | st.builds(Watch, st.lists(NAMES).map(tuple))
)
BOTH_WAYS: dict[str, tuple[Any, Any, Any]] = {
    "hello": (HELLOS, requests.hello_message, requests.hello_from),
    "beat": (
        st.builds(Beat, BATCHES, st.booleans(), st.none() | TOTALS, TOTALS),
        requests.beat_message,
        requests.beat_from,
    ),
    "start": (
        st.builds(Start, NAMES, ATTEMPTS, INSTANTS),
        requests.start_message,
        requests.start_from,
    ),
    "outcome": (OUTCOMES, requests.outcome_message, requests.outcome_from),
    "chunk": (CHUNKS, requests.chunk_message, requests.chunk_from),
    "progress": (
        st.builds(Progress, NAMES, ATTEMPTS, NUMBERS, st.none() | NUMBERS, TEXTS),
        requests.progress_message,
        requests.progress_from,
    ),
    "welcome": (
        st.builds(Welcome, NAMES, NUMBERS, INSTANTS, STREAMS),
        answers.welcome_message,
        answers.welcome_from,
    ),
    "beat answer": (
        st.builds(BeatAnswer, st.booleans(), INSTANTS, BATCHES, BATCHES, st.booleans()),
        answers.beat_answer_message,
        answers.beat_answer_from,
    ),
    "start answer": (
        st.builds(StartAnswer, BATCHES, BATCHES, BATCHES),
        answers.start_answer_message,
        answers.start_answer_from,
    ),
    "report answer": (
        st.builds(ReportAnswer, BATCHES, BATCHES),
        answers.report_answer_message,
        answers.report_answer_from,
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
        (Hello, pb.Hello),
        (Beat, pb.Beat),
        (Start, pb.Start),
        (Outcome, pb.Outcome),
        (StepOutcome, pb.StepOutcome),
        (Progress, pb.Progress),
        (Welcome, pb.Welcome),
        (BeatAnswer, pb.BeatAnswer),
        (StartAnswer, pb.StartAnswer),
        (ReportAnswer, pb.ReportAnswer),
        (Work, pb.Work),
        (SpecEntry, pb.SpecEntry),
    ],
)
def test_no_field_of_a_value_is_forgotten(value: Any, message: Any) -> None:
    fields = [field.name.removesuffix("_json") for field in message.DESCRIPTOR.fields]

    assert fields == list(value.__struct_fields__)


@given(ORDERS)
def test_orders_arrive_as_they_were_sent(order: Order) -> None:
    [message] = answers.order_messages(order)

    arrived = answers.order_from(pb.FromServer.FromString(message.SerializeToString()))

    assert arrived == order


def test_a_spec_of_a_later_version_is_left_out_and_nothing_else() -> None:
    work = Work("r_1", 1, "j_new", 1, 0)
    spec = SpecEntry("j_1", 1, JobSpec("tidy"))
    [message] = answers.order_messages(Dispatch((work,), (spec,)))
    message.dispatch.specs.add(
        job_id="j_new", job_version=1, spec_json=b'{"name":"x","type":"quantum"}'
    )

    assert answers.order_from(message) == Dispatch((work,), (spec,))


def test_a_long_dispatch_travels_in_pieces_specs_first() -> None:
    inputs = {"blob": "x" * (answers.PIECE // 2)}
    work = tuple(Work("r_1", number, "j_1", 1, 0, inputs) for number in range(20))
    spec = SpecEntry("j_1", 1, JobSpec("tidy"))

    parts = list(answers.order_messages(Dispatch(work, (spec,))))

    arrived = [answers.order_from(part) for part in parts]
    assert arrived[0] == Dispatch((), (spec,))
    assert [item for part in arrived[1:] for item in _work_of(part)] == list(work)
    assert all(part.ByteSize() <= answers.PIECE + 100 for part in parts)


def _work_of(order: Order | None) -> tuple[Work, ...]:
    assert isinstance(order, Dispatch)
    return order.work


MESSAGES = st.sampled_from([pb.Hello, pb.Beat, pb.Start, pb.Outcome, pb.OutputChunk, pb.Progress])
READERS = {
    pb.Hello: requests.hello_from,
    pb.Beat: requests.beat_from,
    pb.Start: requests.start_from,
    pb.Outcome: requests.outcome_from,
    pb.OutputChunk: requests.chunk_from,
    pb.Progress: requests.progress_from,
}


@st.composite
def any_message(draw: st.DrawFn) -> Any:
    """A message with every scalar field set to something, sensible or not."""
    message = draw(MESSAGES)()
    for field in message.DESCRIPTOR.fields:
        if not field.is_repeated and draw(st.booleans()):
            setattr(message, field.name, draw(ANYTHING[field.type]))
    return message


ANYTHING: dict[int, st.SearchStrategy[Any]] = {  # by the type of the field
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary() | st.just(b"[" * 100_000),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_ENUM: st.integers(-5, 50),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_STRING: st.text(st.characters(codec="utf-8")),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
}


@given(any_message())
def test_nonsense_is_refused_and_nothing_worse(message: Any) -> None:
    with suppress(Invalid):
        READERS[type(message)](message)
