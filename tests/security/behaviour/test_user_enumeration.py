"""The broker does the same work for unknown and known users, so response times do not reveal users.

The tests count calls of hash and comparison functions, because times differ between machines.
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


def count_hashes(function: Callable[[], object]) -> Counter[str]:
    """Count the calls of `hashlib` and `hmac` functions while `function` runs."""
    calls: Counter[str] = Counter()

    def on_call(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__module__", None) in ("_hashlib", "_operator"):
            calls[called.__name__.lstrip("_")] += 1

    sys.setprofile(on_call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def rejected_login(mechanism: str, name: str, password: str) -> Counter[str]:
    """Return the number of hash calls that the broker makes until it rejects a client."""
    authenticator = SaslAuthenticator(Users(USERS, b"secret of the broker"), ["PLAIN", *HASHES], 0)
    client: Any = PlainClient(name, password)
    if mechanism != "PLAIN":
        client = ScramClient(mechanism, name, password, "mine")
    assert authenticator.select_mechanism(mechanism, "theirs", 0, raw=False)
    calls: Counter[str] = Counter()
    next_message: bytes | None = client.begin()
    steps: list[Challenge | Accepted | Rejected] = []
    while next_message is not None:
        message = next_message
        calls += count_hashes(lambda: steps.append(authenticator.authenticate(message, 0, 0)))  # noqa: B023
        step = steps[-1]
        next_message = client.answer(step.data) if isinstance(step, Challenge) else None
    assert isinstance(steps[-1], Rejected)
    return calls


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
def test_an_unknown_user_takes_as_many_hashes_as_a_wrong_password(mechanism: str) -> None:
    counted = [rejected_login(mechanism, name, password) for name, password in CASES]
    assert counted[0]["compare_digest"] == 1
    assert all(calls == counted[0] for calls in counted)


def test_no_password_is_salted_during_authentication() -> None:
    assert not any("pbkdf2" in name for name in rejected_login("SCRAM-SHA-512", "alice", "wrong"))
