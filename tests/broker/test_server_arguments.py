"""What a server can't do is refused by the name of the argument, before anything happens."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.server import Server, running
from kproto.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("topics", ["a"]),
        ("topics", {"a": "3"}),
        ("topics", "a"),
        ("settings", [1]),
        ("settings", {"num.partitions": None}),
        ("host", 5),
        ("port", -1),
        ("port", 65536),
        ("port", "9092"),
        ("listen", "PLAINTEXT://127.0.0.1:0"),
        ("listen", ["FOO://127.0.0.1:0"]),
        ("users", {"ann": 5}),
        ("users", "ann"),
        ("tls", "server.pem"),
        ("highest", {"Fetch": "11"}),
    ],
)
def test_a_server_that_cannot_be_is_refused(name: str, given: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Server(**{name: given})
    assert refused.value.option == name
    with pytest.raises(ConfigError), running(**{name: given}):
        pass


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigError) as refused:
        Server(users={"ann": "swordfish", "bob": 5})  # type: ignore[dict-item]
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("create_topic", ("u", "3")),
        ("create_topic", ("u", True)),
        ("create_topic", ("u", 1, {"retention.ms": 5})),
        ("create_topic", ("u", 1, "x")),
        ("create_topic", (None,)),
        ("grow_topic", ("t", "9")),
        ("elect_leader", ("t", "0")),
        ("truncate", ("t", 0, "0")),
        ("observe", (5,)),
    ],
)
def test_what_an_operator_cannot_ask_for_is_refused(call: str, given: tuple[Any, ...]) -> None:
    with running(topics={"t": 3}) as server, pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
        getattr(server, call)(*given)
