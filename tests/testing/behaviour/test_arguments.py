"""Invalid arguments to the testing kit raise errors that name the argument and the allowed values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproto.errors import ConfigError
from kproto.testing import brokers, faults, properties, schedules, strategies
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.issuer import Issuer, issuing
from kproto.testing.secured import secured
from kproto.testing.world import World
from tests.bundles import check_each

NONE: Any = None
check_batch_end: Any = properties.a_batch_ends_where_its_rows_end
PEM = "no-such-file.pem"
CERTIFICATES = Certificates(ca=PEM, server=PEM, client=PEM, stranger=PEM, expired=PEM, elsewhere=PEM)


def enter(manager: Any) -> Any:
    with manager as entered:
        return entered


CALLS: list[tuple[str, str, Callable[[Any], object], list[Any]]] = [
    ("algorithm", "RS256, ES256", lambda bad: Issuer(algorithm=bad), ["", None, [], "HS256"]),
    ("clients", "names to texts", lambda bad: Issuer(clients=bad), [True, "x", {"a": 1}]),
    ("clients", "names to texts", lambda bad: enter(issuing(bad)), [True, "x", {"a": 1}]),
    ("subject", "a text", lambda bad: Issuer(algorithm="ES256").token(bad), [None, b"alice"]),
    ("seconds", "a number", lambda bad: Issuer(algorithm="ES256").token("alice", bad), ["", "9"]),
    ("folder", "a pathlib.Path", certificates, [None, "here"]),
    ("server", "and its key", lambda bad: CERTIFICATES.context(server=bad), [PEM, "/"]),
    ("seed", "a whole number", lambda bad: enter(faults.Proxy("localhost:1")).trouble(bad, 1), [[], "x"]),
    ("certificates", "makes", lambda bad: enter(secured("SSL", bad)), [None, "x"]),
    ("settings", "names to", lambda bad: enter(secured("SSL", CERTIFICATES, settings=bad)), [True, [1]]),
    ("issuer", "makes", lambda bad: enter(secured("SSL", CERTIFICATES, issuer=bad)), [True, "x"]),
    ("bootstrap", "a text", lambda bad: enter(brokers.named(bad)), [None, [], 9092]),
    ("properties", "names to texts", lambda bad: enter(brokers.jars(bad)), [True, {"a": None}]),
    ("listeners", "to whole numbers", lambda bad: enter(brokers.jars(listeners=bad)), [True, ["SSL"]]),
    ("version", "a text", lambda bad: enter(brokers.jars(version=bad)), [None, 4.3]),
    ("java_options", "a list of texts", lambda bad: enter(brokers.jars(java_options=bad)), [True, "-ea"]),
    ("assign", "a function", properties.an_assignor_is_a_function, [None, {}]),
    ("times", "0 or more", lambda bad: properties.an_assignor_is_a_function(list, times=bad), [None, -1]),
    ("data", "bytes", lambda bad: properties.a_decoder_takes_any_bytes(bytes.hex, bad), [None, "x"]),
    ("start", "to offsets", lambda bad: check_batch_end(bad, {}, []), [None, {"t": 0}]),
    ("end", "to offsets", lambda bad: check_batch_end({}, bad, []), [None, {"t": 0}]),
    ("rows", "with offsets", lambda bad: check_batch_end({}, {}, bad), [None, "x"]),
    ("steps", "a whole number", lambda bad: schedules.play(1, steps=bad), [None, "x"]),
    ("watch", "a list of functions", lambda bad: schedules.play(1, watch=bad), [None, 1]),
    ("world", "World", schedules.settle, [None, "x"]),
    ("cls", "the class of a message", strategies.versions, [None, "Fetch", int]),
    ("cls", "the class of a message", strategies.versioned, [None, "Fetch", int]),
    ("apis", "give a list", strategies.requests, [1.5, "Fetch"]),
    ("versions", "give a list", lambda bad: strategies.responses(versions=bad), [1.5, "", 3]),
]  # fmt: skip


def check_call(arguments: tuple[str, str, Callable[[Any], object], list[Any]]) -> None:
    name, allowed, call, values = arguments
    for bad in values:
        with pytest.raises(ConfigError) as caught:
            call(bad)
        assert caught.value.option == name, bad
        assert allowed in caught.value.allowed, bad


def test_a_wrong_argument_is_named_in_the_error() -> None:
    check_each(CALLS, check_call)


WORLD_CALLS: list[tuple[str, str, Callable[[Any], object], list[Any]]] = [
    ("batch", "numbered from 0", lambda bad: World({"t": 1}).corrupt_batch("t", 0, batch=bad), [-1, 0, 7]),
    ("partition", "TopicPartition(", lambda bad: World({"t": 1}).log(bad), [None, "t", ("t",)]),
    ("partition", "TopicPartition(", lambda bad: World({"t": 1}).committed("g", bad), [None, "t"]),
    ("group", "a text", lambda bad: World({"t": 1}).committed(bad, NONE), [None, []]),
    ("client", "allowed", lambda bad: World({"t": 1}).client(bad), [None, [], "a"]),
    ("client", "its name", lambda bad: World({"t": 1}).cut(bad), [None, []]),
    ("kind", "a class", lambda bad: World({"t": 1}).requests_of("a", bad), [None, "Fetch"]),
    ("until", "a function", lambda bad: World({"t": 1}).run(1, until=bad), [True, 1]),
    ("path", "a file's name", lambda bad: World({"t": 1}).save(bad), [None, "", b"x"]),
    ("model", "kproto.models", lambda bad: World({"t": 1}).join("a", bad), [True, "java"]),
    ("request", "a request", lambda bad: World({"t": 1}).send_as_operator(bad, 1), [None, "Fetch"]),
]  # fmt: skip


def test_a_wrong_argument_of_a_world_is_named_in_the_error() -> None:
    check_each(WORLD_CALLS, check_call)


def test_offsets_of_an_invalid_partition_are_rejected() -> None:
    world = World({"t": 1})
    a = world.join("a", topics=["t"], group_id="g")
    world.run(until=lambda: bool(a.owned))
    check_call(("offsets", "to offsets", a.commit, [True, "", "x", {"t": 1}]))


def test_a_world_is_saved_into_an_existing_folder(tmp_path: Path) -> None:
    World({"t": 1}).save(tmp_path / "story")
    assert (tmp_path / "story").exists()


def test_none_is_allowed_for_an_argument_with_another_default() -> None:
    assert Issuer(algorithm="ES256", audience=None).audience is None
