"""kafka-go's CommitMessages."""

from __future__ import annotations

from kproto.models import contract as c
from tests.models.kafka_go.stage import ReaderStage, tp


def test_commit_messages_with_an_interval_returns_at_once_and_commits_at_the_interval() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, auto_commit_ms=1_000).join()
    reader.do(c.CommitCalled("token", {tp(0): 1}))
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit("token")]
    assert reader.requests_of("OffsetCommit") == []
    reader.wait(1_100)
    (commit,) = reader.requests_of("OffsetCommit")
    assert commit.topics[0].partitions[0].committed_offset == 1
