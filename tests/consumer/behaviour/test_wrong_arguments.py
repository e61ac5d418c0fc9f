"""Every argument of every public method of every client, found by looking at the classes: what nothing allows
is refused by name, whatever it does when it is looked at, and the client goes on as if nothing was."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest

import consumer
from consumer import AsyncConsumerGroup, Consumer, Producer, ProducerMessage, TopicPartition
from consumer.lifecycle import _open_clients as opened
from kproto.broker.server import running
from kproto.errors import ConfigError
from kproto.messages.list_groups import ListGroupsRequest
from kproto.records import Record, encode_batch

P0 = TopicPartition("t", 0)


class Odd:
    """Nothing is allowed to be this, and nobody may look at it too closely."""

    def _raises(self, *_: Any) -> Any:
        raise ZeroDivisionError("somebody looked")

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __float__ = __index__ = __int__ = _raises
    __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __getitem__ = __format__ = _raises


def clients() -> list[type]:
    """Every class of the package that one opens and closes."""
    found = [getattr(consumer, name) for name in consumer.__all__]
    return [one for one in found if isinstance(one, type) and hasattr(one, "close")]


# What a client's own parts call of it.
INSIDE = {"on_assigned", "on_removed", "remove", "mark"}


def calls(kind: type) -> list[tuple[str, str, inspect.Parameter]]:
    """(method, parameter's name, parameter) of all that is public."""
    return [
        (name, parameter.name, parameter)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in INSIDE and (kind, name) != (AsyncConsumerGroup, "commit")
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]


CALLS = [(kind, *call[:2]) for kind in clients() for call in calls(kind)]
# What goes along with the argument that is wrong.
RIGHT: dict[str, Any] = {
    "topic": "t",
    "topics": ["t"],
    "partition": P0,
    "partitions": [P0],
    "offset": 1,
    "offsets": {P0: 1},
    "where": "earliest",
    "callback": print,
    "wants": {P0: 0},
    "group": "g",
    "totals": {"t": 3},
    "names": ["g"],
    "batch": {"value": [b"x"]},
    "message": ProducerMessage(topic="t", value=b"x"),
    "messages": [ProducerMessage(topic="t", value=b"x")],
}


class Handler:
    def setup(self, session: Any) -> None: ...
    def consume_claim(self, session: Any, claim: Any) -> None: ...
    def cleanup(self, session: Any) -> None: ...


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server.bootstrap


def made(kind: Any, broker: str) -> Any:
    options: dict[str, Any] = {"group_id": "g"} if kind.__name__.endswith(("Group", "Consumer")) else {}
    if kind.__name__.endswith("Producer") and "Queue" not in kind.__name__ and "Sync" not in kind.__name__:
        options = {"transactional_id": "x"}
    return kind(broker, **options)


async def answered(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def given(kind: Any, method: str, wrong: str, value: Any) -> dict[str, Any]:
    """Arguments of which one is wrong."""
    parameters = inspect.signature(getattr(kind, method)).parameters
    right = {**RIGHT, "handler": Handler()}
    match method:
        case "consume_partition":
            right["partition"] = 0
        case "create_topics":
            right["topics"] = {"new": 1}
        case "run":
            right["plan"] = (None for _ in ())
        case "request" | "request_versioned":
            right["request"] = ListGroupsRequest()
        case "produce":
            right["records"] = encode_batch([Record(0, 0, None, b"x")])
    needed = [
        name
        for name, one in parameters.items()
        if name not in ("self", wrong) and one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    return {**{name: right.get(name) for name in needed}, wrong: value}


def attempt(kind: Any, broker: str, act: Callable[[Any], Any], then: Callable[[Any], Any]) -> BaseException:
    """What `act` raised of a new client; `then` is what comes after, and then it is closed."""

    before = set(opened)

    async def story() -> BaseException:
        client = made(kind, broker)
        try:
            await answered(act(client))
        except BaseException as error:
            found = error
        else:
            found = AssertionError("nothing was raised")
        await answered(then(client))
        await answered(client.close())
        assert not [str(one) for one in opened if one not in before]
        return found

    if kind.__name__.startswith("Async"):
        return asyncio.run(story())
    story_ = story()
    try:
        story_.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def goes_on(client: Any) -> Any:
    """It is as it was: usable."""
    for name, arguments in (
        ("assignment", ()),
        ("topics", ()),
        ("high_water_marks", ()),
        ("pause_all", ()),
        ("begin", (5,)),
        ("send_message", (ProducerMessage(topic="t", value=b"x"),)),
        ("input", (ProducerMessage(topic="t", value=b"x"),)),
    ):
        if hasattr(client, name):
            return getattr(client, name)(*arguments)
    raise AssertionError(f"what can one ask {client}?")


def of_kproto() -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith("kproto-")}


def name_of(call: Any) -> str:
    return call.__name__ if isinstance(call, type) else str(call)


def broken() -> Iterator[Any]:
    yield P0
    raise LookupError("the application's own")


# Built anew for each call, as some are used up.
INSIDE_OF: list[Callable[[], Any]] = [
    lambda: [Odd()],
    lambda: (Odd(), 0),
    lambda: TopicPartition("t", Odd()),  # type: ignore[arg-type]
    lambda: {P0: Odd()},
    lambda: {"t": Odd()},
    lambda: {"value": [Odd()]},
    lambda: [("a", Odd())],
]


@pytest.mark.parametrize(("kind", "method", "wrong"), CALLS, ids=name_of)
def test_what_nothing_allows_is_refused_by_name(broker: str, kind: Any, method: str, wrong: str) -> None:
    before = of_kproto()
    error = attempt(kind, broker, lambda c: getattr(c, method)(**given(kind, method, wrong, Odd())), goes_on)
    assert isinstance(error, ConfigError), error
    assert error.option.split("[")[0] == wrong
    assert "Odd" in str(error)
    assert of_kproto() <= before


TIMEOUTS = [call for call in CALLS if call[2] == "timeout"]


@pytest.mark.parametrize(("kind", "method", "wrong"), TIMEOUTS, ids=name_of)
def test_a_time_that_is_none_is_refused(broker: str, kind: Any, method: str, wrong: str) -> None:
    for value in [-1, -math.inf, math.nan, "1", True, b"", [1], -1e-9]:
        act = lambda c, value=value: getattr(c, method)(**given(kind, method, wrong, value))  # noqa: E731
        error = attempt(kind, broker, act, goes_on)
        assert isinstance(error, ConfigError), (value, error)
        assert error.option == "timeout"


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "method", "wrong"), CALLS, ids=name_of)
def test_what_nothing_allows_is_found_inside_of_others(
    broker: str, kind: Any, method: str, wrong: str
) -> None:
    for make in INSIDE_OF:
        value = make()
        if wrong == "partitions" and method != "assign" and isinstance(value, dict):
            continue  # its keys are what is asked for
        act = lambda c, value=value: getattr(c, method)(**given(kind, method, wrong, value))  # noqa: E731
        error = attempt(kind, broker, act, goes_on)
        assert isinstance(error, ConfigError), (value, error)
    if wrong == "plan":
        return  # a generator is what it should be
    error = attempt(
        kind, broker, lambda c: getattr(c, method)(**given(kind, method, wrong, broken())), goes_on
    )
    assert isinstance(error, ConfigError | LookupError), error


class Topic(str, Enum):  # noqa: UP042  # a StrEnum's str() is its text
    flights = "t"


def test_a_topic_may_be_of_a_class_of_texts(broker: str) -> None:
    place = TopicPartition(Topic.flights, 0)
    with Producer(broker) as producer:
        assert producer.send(Topic.flights, b"x", partition=0).result(5).topic == "t"
        assert producer.send_columns(Topic.flights, {"value": [b"x"]})
    with Consumer(broker, group_id="texts", auto_offset_reset="earliest") as reader:
        reader.subscribe([Topic.flights])
        assert reader.poll(5)
        assert {str(one) for one in reader.assignment()} == {"t-0", "t-1"}
        reader.commit({place: 1})
        assert [str(one) for one in reader.committed([place])] == ["t-0"]
