"""An unknown user takes as much work as a known one, so times do not reveal users.

The tests count calls that hash and compare, because times differ between machines.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kproto.broker.security.authenticator import SaslAuthenticator
from kproto.broker.security.users import Users
from kproto.security.exchange import Accepted, Challenge, Rejected
from kproto.security.plain import PlainClient
from kproto.security.scram import HASHES, ScramClient

USERS = {"alice": "a", "bob": "b" * 200}
CASES = [
    ("alice", "wrong"),
    ("bob", "wrong"),
    ("nobody", "wrong"),
    ("nobody", "x" * 200),
    ("alice", "b" * 200),
]


def hashed(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of functions of `hashlib` and `hmac`."""
    calls: Counter[str] = Counter()

    def look(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__module__", None) in ("_hashlib", "_operator"):
            calls[called.__name__.lstrip("_")] += 1

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def refusal(mechanism: str, name: str, password: str) -> Counter[str]:
    """Return what the broker hashes until it rejects a client."""
    door = SaslAuthenticator(Users(USERS, b"secret of the broker"), ["PLAIN", *HASHES], 0)
    client: Any = PlainClient(name, password)
    if mechanism != "PLAIN":
        client = ScramClient(mechanism, name, password, "mine")
    assert door.select_mechanism(mechanism, "theirs", 0, raw=False)
    calls: Counter[str] = Counter()
    message_to_send: bytes | None = client.begin()
    steps: list[Challenge | Accepted | Rejected] = []
    while message_to_send is not None:
        message = message_to_send
        calls += hashed(lambda: steps.append(door.authenticate(message, 0, 0)))  # noqa: B023
        step = steps[-1]
        message_to_send = client.answer(step.data) if isinstance(step, Challenge) else None
    assert isinstance(steps[-1], Rejected)
    return calls


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
def test_an_unknown_user_takes_as_many_hashes_as_a_wrong_password(mechanism: str) -> None:
    counted = [refusal(mechanism, name, password) for name, password in CASES]
    assert counted[0]["compare_digest"] == 1
    assert all(calls == counted[0] for calls in counted)


def test_no_password_is_salted_during_authentication() -> None:
    assert not any("pbkdf2" in name for name in refusal("SCRAM-SHA-512", "alice", "wrong"))
