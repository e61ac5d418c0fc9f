"""Public methods of the blocking and asyncio clients: both have the same names, signatures and docstrings."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from typing import Any, Generic

import pytest

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from tests.conformance.admin_calls import CALLS, WITHOUT_REQUEST

TWINS = [(Consumer, AsyncConsumer), (Admin, AsyncAdmin), (Producer, AsyncProducer)]
# Methods whose docstrings differ.
OWN = {"commit_async", "send", "transaction"}
DOES_NOT_WAIT = {
    "assign", "assignment", "assignment_lost", "commit_async", "events",
    "group_metadata", "high_watermark", "kill", "lag", "metrics", "pause", "paused",
    "register_metric_for_subscription", "rejoin", "resume", "seek", "seek_to", "send_offsets",
    "store_offsets", "subscribe", "subscription", "transaction", "unregister_metric_from_subscription",
    "wakeup", "why",
}  # fmt: skip


def methods(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_both_clients_have_the_same_methods_signatures_and_docstrings(blocking: type, awaited: type) -> None:
    threads, tasks = methods(blocking), methods(awaited)
    assert threads.keys() == tasks.keys()
    for name, method in threads.items():
        if name not in OWN:
            assert inspect.signature(method) == inspect.signature(tasks[name])
            assert inspect.getdoc(method) == inspect.getdoc(tasks[name])


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_methods_that_wait_are_coroutines_in_asyncio(blocking: type, awaited: type) -> None:
    assert not any(inspect.iscoroutinefunction(method) for method in methods(blocking).values())
    plain = {name for name, method in methods(awaited).items() if not inspect.iscoroutinefunction(method)}
    assert plain == DOES_NOT_WAIT & methods(awaited).keys()


@pytest.mark.parametrize("kind", [kind for twins in TWINS for kind in twins])
def test_every_public_method_has_a_docstring(kind: type) -> None:
    assert [name for name, method in methods(kind).items() if not inspect.getdoc(method)] == []


@pytest.mark.parametrize("kind", [kind for twins in TWINS for kind in twins])
def test_every_public_method_is_defined_in_its_class_which_has_few_bases(kind: type) -> None:
    assert methods(kind).keys() <= vars(kind).keys()
    assert len([base for base in kind.__mro__ if base is not Generic]) <= 4


def test_help_shows_signatures_and_docstrings() -> None:
    # Quotes are removed, because Python 3.14 shows annotations without them.
    text = pydoc.plain(pydoc.render_doc(Consumer)).replace("'", "")
    assert "poll(self, timeout: float = 1.0, max_records: int | None = None, **unknown: Never)" in text
    assert "Return the next records, at most max_poll_records" in text
    assert Consumer.poll.__qualname__ == "Consumer.poll"
    assert AsyncConsumer.poll.__module__ == "consumer.aio.consumer"


def test_a_subclass_may_override_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Consumer):
        def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Any:
            return "mine"

    consumer = Mine("127.0.0.1:1")
    assert consumer.poll() == "mine"
    assert consumer.assignment() == set()
    consumer.kill()


def imported(code: str) -> list[str]:
    """Return the modules that a new interpreter has imported after it has run `code`."""
    text = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_importing_the_package_imports_none_of_its_modules() -> None:
    heavy = imported("import consumer")
    assert "consumer" in heavy
    ours = [name for name in heavy if name.startswith(("consumer.", "kproto.", "asyncio"))]
    assert sorted(ours) == ["kproto.lazy_imports", "kproto.version"]


def test_a_blocking_client_does_not_import_asyncio() -> None:
    heavy = imported("from consumer import Consumer, Admin")
    assert "consumer.blocking.consumer" in heavy
    assert "asyncio" not in heavy


@pytest.mark.parametrize(
    "client",
    [
        "from consumer import AsyncProducer as C",
        pytest.param("from consumer import AsyncConsumer as C", marks=pytest.mark.thorough),
    ],
)
def test_crc32c_is_imported_with_the_client_and_not_at_the_first_batch(client: str) -> None:
    """Creating a client imports crc32c, which would block the event loop at the first batch.

    The import takes 40 ms, because crc32c looks up its own version in the metadata of packages.
    """
    program = "import asyncio\nasync def main(): return C('127.0.0.1:1')\nasyncio.run(main())"
    heavy = imported(f"{client}\n{program}")
    assert {"crc32c", "importlib.metadata"} <= set(heavy)
    assert "crc32c" not in imported(client)


def test_every_admin_method_has_a_call_for_a_real_kafka() -> None:
    public = {name for name in vars(Admin) if not name.startswith("_")}
    assert public - WITHOUT_REQUEST == CALLS.keys(), "CALLS in tests/conformance/admin_calls.py"
