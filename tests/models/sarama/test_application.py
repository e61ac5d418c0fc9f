"""In sarama's model, polls time out, commits may name offsets, and callbacks run in order."""

from __future__ import annotations

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama.partition_consumer import FeederState, MessageReceiver
from tests.models.sarama.stage import requests_of, stage_with_member

T0 = TopicPartition("t", 0)


def test_a_commit_call_may_name_offsets() -> None:
    stage, a = stage_with_member(auto_commit=False)
    a.do(c.CommitCalled("x", {T0: 9}))
    stage.run(1_000)
    assert requests_of(a, "Commit") == ["Commit v8 gen=1 id=A1 t:0@9/e-1,t:1@5/e-1 -> 0"]


def test_a_poll_without_messages_ends_at_its_timeout() -> None:
    state = sarama.start(c.ModelConfig(client_id="a", group_id="g"))
    state.out = []
    state.application.poll(c.PollCalled(timeout_ms=50, limit=2))
    assert not state.application.is_busy
    state.now = 50
    state.expire()
    assert state.out == [c.FinishPoll()]
    assert state.application.is_busy


def test_callbacks_return_to_their_routines_in_order() -> None:
    state = sarama.start(c.ModelConfig(client_id="a", group_id="g"))
    state.out = []
    first, second = MessageReceiver(FeederState.IDLE), MessageReceiver(FeederState.IDLE)
    state.application.run_callback("assigned", (T0,), first)
    state.application.run_callback("revoked", (T0,), second)
    assert state.out == [c.RunCallback("assigned", (T0,)), c.RunCallback("revoked", (T0,))]
    state.application.on_callback_returned()
    assert list(state.application.callback_waiters) == [second]
