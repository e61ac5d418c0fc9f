"""After Java's consumer has been closed, its steps send nothing."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6


@pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
def test_nothing_is_sent_after_close_has_returned(release: ModuleType) -> None:
    """KafkaConsumer.close closes the consumer's network client last, so no request is sent afterwards.

    After close, a commitAsync that still waits for the coordinator does not repeat the lookup.
    """
    t0 = TopicPartition("t", 0)
    state = release.start(c.make_config({"client_id": "a", "group_id": "g", "auto_commit": False}))
    release.step(state, c.Started((("localhost", 9092),), {}), 0)
    release.step(state, c.AssignCalled({t0: None}), 0)
    [lookup] = release.step(state, c.CommitCalled("token", {t0: 3}, wait=False), 0)
    release.step(state, c.RequestFailed(lookup.request, "disconnected"), 10)
    assert release.step(state, c.CloseCalled(), 20_000) == [c.FinishClose()]
    assert release.next_deadline(state) is None
    assert release.step(state, c.DeadlineReached(), 40_000) == []
