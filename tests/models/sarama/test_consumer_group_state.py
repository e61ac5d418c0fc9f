"""The state of a ConsumerGroup: a change of its topics, or Close, ends the current Consume."""

from __future__ import annotations

from kproto.models import sarama
from kproto.models.sarama import errors
from kproto.models.sarama.consumer_group_state import SaramaGroupState
from tests.models.sarama.stage import stage_with_client, stage_with_member

S = SaramaGroupState


def test_a_client_without_a_subscription_is_idle() -> None:
    stage, a = stage_with_client()
    stage.run(1_000)
    assert a.state.group.state is S.IDLE
    assert sarama.next_deadline(a.state) is not None


def test_a_new_subscription_cancels_the_session() -> None:
    stage, a = stage_with_member()
    session = a.state.group.session
    stage.topic("u", 1)
    a.run_command("subscribe u")
    assert stage.run(until=lambda: a.has_printed("revoked"))
    assert session.cause == errors.CANCELED
    assert stage.run(until=lambda: a.has_printed("assigned u:0"))
    assert a.state.group.state is S.RUNNING


def test_a_closed_group_reports_no_errors() -> None:
    stage, a = stage_with_member()
    a.run_command("close")
    assert stage.run(2_000, until=lambda: a.closed)
    a.state.out = []
    a.state.group.report(errors.TIMED_OUT)
    assert a.state.out == []
