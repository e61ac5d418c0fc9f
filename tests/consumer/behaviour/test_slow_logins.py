"""Clients wait for a login that takes seconds, such as one against a directory service."""

from __future__ import annotations

from typing import Any

from consumer.engine.network.transport import Broken, Open, Write
from consumer.security.failures import CLOSED
from kproto.messages.metadata import MetadataRequest
from kproto.wire.frame import Frames
from tests.consumer.engine.network.login_stage import LoginStage


def stage_without_login_response() -> LoginStage:
    """Return a client whose broker does not answer SaslAuthenticate."""
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.answers_no = ("SaslAuthenticate",)
    return stage


def error_of(stage: LoginStage, call: Any) -> str:
    """Run the client at each of its deadlines until the call has ended, and return the call's error."""
    while not call.done:
        due = stage.network.next_deadline()
        assert due is not None
        stage.tick(due)
    return str(call.error)


def test_each_login_that_times_out_doubles_the_timeout() -> None:
    stage = stage_without_login_response()
    for ms in (3_000, 6_000, 10_000, 10_000):
        assert f"did not answer the login of user 'alice' within {ms} ms" in error_of(stage, stage.ask())


def test_a_slow_login_raises_the_timeout_of_the_next_one() -> None:
    stage = stage_without_login_response()
    for _ in range(2):
        error_of(stage, stage.ask())
    call = stage.ask()
    while not isinstance(stage.actions[-1], Write):
        stage.tick(stage.network.next_deadline() or 0)
    written = stage.actions[-1]
    stage.tick(stage.now + 7_000)
    assert not call.done
    stage.answers_no = ()
    [body] = Frames().feed(written.data)
    stage.serve(written.key, body)
    stage.run()
    assert error_of(stage, call) == "None"
    stage.happened(Broken(written.key, CLOSED))
    stage.answers_no = ("SaslAuthenticate",)
    assert "within 10000 ms" in error_of(stage, stage.ask())


def test_a_lookup_is_repeated_as_long_as_logins_may_take() -> None:
    stage = stage_without_login_response()
    stage.network.bootstrap[:] = [("a", 1)]
    call = stage.network.send(MetadataRequest(topics=[]), 0)
    stage.run()
    assert "within 10000 ms" in error_of(stage, call)
    assert sum(isinstance(action, Open) for action in stage.actions) == 3
