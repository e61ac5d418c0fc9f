"""The methods of the public clients pass their arguments on, and return the results unchanged.

The blocking admin client delegates to the asyncio client. All other clients delegate to their operations. In
the tests a recorder replaces the asyncio client or the operations.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from consumer.runtime import run_to_end
from tests.bundles import bundles, check_each
from tests.consumer.behaviour.valid_arguments import valid_argument

NOWHERE = "127.0.0.1:1"
KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Result:
    """The result of a recorded call.

    A client may await this object, or run it as a coroutine. In both cases the result is this object itself.
    """

    def send(self, value: None) -> None:
        raise StopIteration(self)

    def __await__(self) -> Iterator[Any]:
        yield from ()
        return self


class Recorder:
    """Records the name, the arguments and the result of each call of an object's methods."""

    def __init__(self, replaced: Any) -> None:
        self.replaced = replaced
        self.runtime = getattr(replaced, "runtime", None)
        self.calls: list[tuple[str, dict[str, Any], Result]] = []

    def __getattr__(self, name: str) -> Callable[..., Result]:
        signature = inspect.signature(getattr(self.replaced, name))

        def method(*args: Any, **kwargs: Any) -> Result:
            result = Result()
            self.calls.append((name, dict(signature.bind(*args, **kwargs).arguments), result))
            return result

        return method


def methods_of(client: type, *left_out: str) -> list[tuple[type, str]]:
    """Return (class, name) of each public method of a client, except those in `left_out`."""
    return [
        (client, name)
        for name, method in vars(client).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in left_out
    ]


METHODS = [
    *methods_of(Admin),
    *methods_of(Consumer, "wakeup", "kill"),
    *methods_of(AsyncConsumer, "wakeup", "kill"),
    *methods_of(Producer, "send", "transaction"),
    *methods_of(AsyncProducer, "send", "transaction"),
]


@pytest.mark.parametrize("methods", bundles(METHODS))
def test_a_method_passes_each_argument_on_under_its_name(methods: Sequence[tuple[type, str]]) -> None:
    async def call(client: type, name: str) -> None:
        used: Any = client(NOWHERE)
        operations = used._operations
        used._operations = recorder = Recorder(operations)
        method = getattr(used, name)
        expected_values = {
            parameter.name: object()
            for parameter in inspect.signature(method).parameters.values()
            if parameter.kind in KINDS
        }
        returned = method(**expected_values)
        if inspect.iscoroutine(returned):
            returned = run_to_end(returned)
        ((called, passed, result),) = recorder.calls
        if called == "transact":
            assert passed.pop("operation") == name
        else:
            assert called == name
        assert passed == expected_values
        assert returned in (result, None)
        assert (returned is None) == (inspect.signature(method).return_annotation == "None")
        if client is Producer or client is AsyncProducer:
            operations.kill()
        else:
            used._operations = operations
            used.close() if client is Admin else used.kill()

    check_each(methods, lambda method: asyncio.run(call(*method)))


PLANNED = [name for name, method in vars(AsyncAdmin).items() if inspect.iscoroutinefunction(method)]


@pytest.mark.parametrize(("timeout", "limit"), [(None, 30_000), (7.5, 7_500)])
@pytest.mark.parametrize(
    "names", bundles([name for name in PLANNED if not name.startswith("_") and name != "close"], 6)
)
def test_a_call_of_an_admin_client_has_its_timeout_or_that_of_the_client(
    names: Sequence[str], timeout: float | None, limit: int
) -> None:
    calls: list[tuple[str, int]] = []

    async def run(method: str, plan: Any, limit: int) -> Any:
        calls.append((method, limit))
        raise Recorded

    async def call(name: str) -> None:
        admin = AsyncAdmin(NOWHERE)
        admin._runner.run = run  # type: ignore[method-assign]
        method = getattr(admin, name)
        required = {
            parameter.name: valid_argument(name, parameter.name)
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is inspect.Parameter.empty
        }
        with pytest.raises(Recorded):
            await method(**required, timeout=timeout)
        assert calls.pop() == (name, limit)

    check_each(names, lambda name: asyncio.run(call(name)))
    assert calls == []


class Recorded(Exception):
    """Raised to end a call of an admin client after its plan and timeout were recorded."""
