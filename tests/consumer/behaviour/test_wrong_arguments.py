"""Every public method of every client rejects wrong values of each argument.

The error names the argument. The client is usable afterwards.

The tests find the methods and arguments by inspecting the classes. Most tests pass a `Hostile` value, which
raises if it is compared, printed or converted.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import pytest

import consumer
from consumer import AsyncConsumerGroup, Consumer, Producer, ProducerMessage, TopicPartition
from consumer.lifecycle import _open_clients as opened
from kproto.broker.server import running
from kproto.errors import ConfigError
from tests.consumer.behaviour.valid_arguments import P0, valid_argument


class Hostile:
    """A value that no argument allows, and that raises when it is compared, printed or converted."""

    def _raises(self, *_: Any) -> Any:
        raise ZeroDivisionError("the value was used")

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __float__ = __index__ = __int__ = _raises
    __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __getitem__ = __format__ = _raises


def clients() -> list[type]:
    """Return every public class that has a close method."""
    members = [getattr(consumer, name) for name in consumer.__all__]
    return [member for member in members if isinstance(member, type) and hasattr(member, "close")]


# Public methods that only other parts of a client call.
INTERNAL = {"on_assigned", "on_removed", "remove", "mark"}


def calls(kind: type) -> list[tuple[str, str, inspect.Parameter]]:
    """Return (method, parameter's name, parameter) for each parameter of the public methods."""
    return [
        (name, parameter.name, parameter)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and name not in INTERNAL
        and (kind, name) != (AsyncConsumerGroup, "commit")
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]


class Handler:
    def setup(self, session: Any) -> None: ...
    def consume_claim(self, session: Any, claim: Any) -> None: ...
    def cleanup(self, session: Any) -> None: ...


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server.bootstrap


def create_client(kind: Any, broker: str) -> Any:
    options: dict[str, Any] = {"group_id": "g"} if kind.__name__.endswith(("Group", "Consumer")) else {}
    if kind.__name__.endswith("Producer") and "Queue" not in kind.__name__ and "Sync" not in kind.__name__:
        options = {"transactional_id": "x"}
    return kind(broker, **options)


async def await_result(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def arguments_with(kind: Any, method: str, wrong: str, value: Any) -> dict[str, Any]:
    """Return valid values of a method's required arguments, but `value` for the argument `wrong`."""
    parameters = inspect.signature(getattr(kind, method)).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if name not in ("self", wrong)
        and parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
    ]
    arguments = {name: Handler() if name == "handler" else valid_argument(method, name) for name in required}
    return {**arguments, wrong: value}


Call = Callable[[Any], Any]


def attempt(kind: Any, broker: str, acts: Sequence[Call], then: Call) -> list[BaseException]:
    """Make the calls `acts` with one new client, and return the error of each call.

    Afterwards, the function calls `then` with the client, and closes the client.
    """
    earlier = set(opened)

    async def error_of(act: Call, client: Any) -> BaseException:
        try:
            await await_result(act(client))
        except BaseException as error:
            return error
        return AssertionError("nothing was raised")

    async def main() -> list[BaseException]:
        client = create_client(kind, broker)
        raised = [await error_of(act, client) for act in acts]
        await await_result(then(client))
        await await_result(client.close())
        assert not [str(client_opened) for client_opened in opened if client_opened not in earlier]
        return raised

    if kind.__name__.startswith("Async"):
        return asyncio.run(main())
    coroutine = main()
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the call blocks")


def call_with(kind: Any, method: str, wrong: str, value: object) -> Call:
    """Return a function that calls a client's method with `value` as the argument `wrong`."""
    return lambda client: getattr(client, method)(**arguments_with(kind, method, wrong, value))


def check_usable(client: Any) -> Any:
    """Check that the client is still usable."""
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
    raise AssertionError(f"the client {client} has none of the methods that this check can call; add one")


def client_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kproto-")}


def name_of(call: Any) -> str:
    return call.__name__ if isinstance(call, type) else str(call)


def failing_iterator() -> Iterator[Any]:
    yield P0
    raise LookupError("the application's own")


# Functions that create the values, because each call needs its own value: an iterator can be used only once.
WRONG_INSIDE: list[Callable[[], Any]] = [
    lambda: [Hostile()],
    lambda: (Hostile(), 0),
    lambda: TopicPartition("t", Hostile()),  # type: ignore[arg-type]
    lambda: {P0: Hostile()},
    lambda: {"t": Hostile()},
    lambda: {"value": [Hostile()]},
    lambda: [("a", Hostile())],
]


@pytest.mark.parametrize("kind", clients(), ids=name_of)
def test_a_wrong_value_is_rejected_by_name(broker: str, kind: Any) -> None:
    wrong_calls = [(method, wrong) for method, wrong, _ in calls(kind)]
    earlier = client_threads()
    acts = [call_with(kind, method, wrong, Hostile()) for method, wrong in wrong_calls]
    errors = attempt(kind, broker, acts, check_usable)
    for (method, wrong), error in zip(wrong_calls, errors, strict=True):
        assert isinstance(error, ConfigError), (method, wrong, error)
        assert error.option.split("[")[0] == wrong, method
        assert "Hostile" in str(error), (method, wrong)
    assert client_threads() <= earlier


INVALID_TIMEOUTS = (-1, math.nan, "1", -math.inf, True, b"", [1], -1e-9)


@pytest.mark.parametrize("kind", clients(), ids=name_of)
def test_an_invalid_timeout_is_rejected(broker: str, kind: Any) -> None:
    wrong_calls = [
        (method, value) for method, name, _ in calls(kind) if name == "timeout" for value in INVALID_TIMEOUTS
    ]
    acts = [call_with(kind, method, "timeout", value) for method, value in wrong_calls]
    errors = attempt(kind, broker, acts, check_usable)
    for (method, value), error in zip(wrong_calls, errors, strict=True):
        assert isinstance(error, ConfigError), (method, value, error)
        assert error.option == "timeout", (method, value)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", clients(), ids=name_of)
def test_a_wrong_value_inside_of_a_collection_is_rejected(broker: str, kind: Any) -> None:
    acts: dict[tuple[str, str, int], Call] = {}
    for method, wrong, _ in calls(kind):
        for number, make in enumerate(WRONG_INSIDE):
            value = make()
            if wrong == "partitions" and method != "assign" and isinstance(value, dict):
                # Methods other than `assign` accept a dict of partitions: its keys are valid, and its values
                # are ignored.
                continue
            acts[method, wrong, number] = call_with(kind, method, wrong, value)
        if wrong != "plan":  # A plan is a generator, so a failing generator is a valid plan.
            acts[method, wrong, -1] = call_with(kind, method, wrong, failing_iterator())
    errors = attempt(kind, broker, list(acts.values()), check_usable)
    for (method, wrong, number), error in zip(acts, errors, strict=True):
        allowed = ConfigError if number >= 0 else ConfigError | LookupError
        assert isinstance(error, allowed), (method, wrong, number, error)


# str() of a member is not its text, unlike that of a StrEnum.
class Topic(str, Enum):  # noqa: UP042
    flights = "t"


def test_a_topic_may_be_an_instance_of_a_subclass_of_str(broker: str) -> None:
    t0 = TopicPartition(Topic.flights, 0)
    with Producer(broker) as producer:
        assert producer.send(Topic.flights, b"x", partition=0).result(5).topic == "t"
        assert producer.send_columns(Topic.flights, {"value": [b"x"]})
    with Consumer(broker, group_id="texts", auto_offset_reset="earliest") as reader:
        reader.subscribe([Topic.flights])
        assert reader.poll(5)
        assert {str(partition) for partition in reader.assignment()} == {"t-0", "t-1"}
        reader.commit({t0: 1})
        assert [str(partition) for partition in reader.committed([t0])] == ["t-0"]
