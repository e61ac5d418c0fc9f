"""The model of sarama-cluster joins, commits and leaves as the original does, and does not notice new
partitions until the next rebalance.
"""

from __future__ import annotations

import pytest

from kproto.messages.offset_fetch import OffsetFetchResponse
from kproto.models import contract as c
from kproto.models import sarama_cluster
from tests.models.sarama.stage import requests_of
from tests.models.stage import Stage, StageMember
from tests.rules import rule

USUAL = {
    "session_ms": 6_000,
    "heartbeat_ms": 200,
    "auto_commit_ms": 300,
    "metadata_ms": 300_000,
    "reset": "earliest",
}
PROTOCOLS = "range(v1 topics=t) roundrobin(v1 topics=t)"


def stage_with_member(partitions: int = 2, **conf: object) -> tuple[Stage, StageMember]:
    stage = Stage({"t": partitions})
    stage.produce("t", range(partitions), 5)
    a = stage.add_member("A", sarama_cluster, **{**USUAL, **conf})
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5 * partitions)
    stage.run(400)
    return stage, a


def add_second_member(stage: Stage, **conf: object) -> StageMember:
    b = stage.add_member("B", sarama_cluster, **{**USUAL, **conf})
    b.run_command("subscribe t")
    assert stage.run(until=lambda: b.has_printed("assigned"))
    stage.run(1_000)
    return b


def lines_without_heartbeats(member: StageMember) -> list[str]:
    return [
        line
        for line in member.requests
        if not (line.startswith("Heartbeat") and line.endswith(("-> 0", "silence")))
    ]


def test_the_first_cycle_sends_the_requests_of_sarama_cluster() -> None:
    # The original client (sarama 1.17.0, Version V0_11_0_0) sent these requests to Kafka 4.3.1.
    _, a = stage_with_member()
    assert lines_without_heartbeats(a) == [
        "Metadata v1 all",
        "Find v0 g -> 0",
        "Metadata v1 all",
        "Find v0 g -> 0",
        f"Join v0 id=- sess=6000 reb=-1 reason=null {PROTOCOLS} -> 0 gen=1 id=A1 leader of 1 proto=range",
        "Sync v0 gen=1 id=A1 assign A1=t:0,t:1 -> 0 got=t:0,t:1",
        "OffsetFetch v1 stable=None t:0,t:1 -> 0 t:0@-1,t:1@-1",
        "ListOffsets v1 iso=0 t:0@-1 -> 0 t:0@5",
        "ListOffsets v1 iso=0 t:1@-1 -> 0 t:1@5",
        "ListOffsets v1 iso=0 t:0@-2 -> 0 t:0@0",
        "ListOffsets v1 iso=0 t:1@-2 -> 0 t:1@0",
        "Commit v2 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0",
    ]


def test_a_rebalance_commits_before_it_joins() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    add_second_member(stage)
    lines = lines_without_heartbeats(a)
    later_requests = lines[lines.index("Heartbeat v0 gen=1 id=A1 -> 27") + 1 :]
    assert [line.split()[0] for line in later_requests[:5]] == ["Metadata", "Find", "Commit", "Join", "Sync"]
    assert later_requests[3].startswith("Join v0 id=A1 ")


def test_the_first_heartbeat_follows_one_interval_after_the_sync() -> None:
    _, a = stage_with_member()
    sync, beat = (next(line.now for line in a.lines if line.api == api) for api in ("Sync", "Heartbeat"))
    assert 200 <= beat - sync <= 205


@rule("M204")
def test_s1_9_new_partitions_are_not_noticed_until_another_member_joins() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    stage.grow("t", 4)
    stage.produce("t", [2, 3], 5)
    stage.run(30_000)
    assert len(a.records) == 10
    b = add_second_member(stage, metadata_ms=1_000)
    stage.run(5_000)
    assert len(a.records) + len(b.records) == 20


def test_s1_10_a_new_topic_of_the_whitelist_causes_a_rebalance() -> None:
    stage, a = stage_with_member(metadata_ms=10_000, Whitelist="^t", Blacklist="bad$")
    stage.topic("t-bad", 1)
    stage.run(30_000)
    assert len(requests_of(a, "Join")) == 1
    created_at = stage.now
    stage.topic("t-new", 1)
    assert stage.run(until=lambda: a.has_printed("assigned t-new:0 t:0 t:1"))
    assert stage.now - created_at <= 10_000 + 5_000 + 1_000


@rule("M68")
@pytest.mark.parametrize(
    ("code", "is_reported"), [(27, False), (16, False), (25, True), (22, True), (14, True)]
)
def test_any_heartbeat_error_ends_the_cycle_and_two_are_not_reported(code: int, is_reported: bool) -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", code)
    stage.run(3_000)
    assert len(requests_of(a, "Join")) == 2
    assert a.has_printed(f"error KError({code})") == is_reported


def test_an_unknown_member_resets_its_id_and_backs_off() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 27)
    a.inject("Join", 25)
    stage.run(until=lambda: len(requests_of(a, "Join")) == 3)
    assert requests_of(a, "Join")[1].startswith("Join v0 id=A1 ")
    assert requests_of(a, "Join")[2].startswith("Join v0 id=- ")
    assert a.has_printed("error rebalance error")


def test_a_failed_sync_leaves_the_group_but_keeps_the_member_id() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 27)
    a.inject("Sync", 22)
    stage.run(3_000)
    lines = [line.split()[0] for line in requests_of(a, "Join", "Sync", "Leave")]
    assert lines[:5] == ["Join", "Sync", "Join", "Sync", "Leave"]
    assert requests_of(a, "Join")[2].startswith("Join v0 id=A1 ")


def test_a_sync_during_a_rebalance_does_not_leave() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 27)
    a.inject("Sync", 27)
    stage.run(3_000)
    assert not requests_of(a, "Leave")
    assert not a.has_printed("error KError(27)")


def test_an_offset_that_cannot_be_fetched_leaves_the_group() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 27)
    codes, do = [14], a.do

    def refuse(event: c.ModelEvent) -> None:
        if (
            codes
            and isinstance(event, c.ResponseReceived)
            and isinstance(event.response, OffsetFetchResponse)
        ):
            event.response.topics[0].partitions[0].error_code = codes.pop()
        do(event)

    a.do = refuse  # type: ignore[method-assign]
    stage.run(4_000)
    assert len(requests_of(a, "Leave")) == 1
    assert a.has_printed("assigned", times=2)


def test_a_failing_commit_has_four_attempts_and_ends_the_cycle() -> None:
    stage, a = stage_with_member()
    stage.produce("t", [0], 1)
    a.inject("Commit", *[25] * 4)
    stage.run(3_000)
    assert len([line for line in requests_of(a, "Commit") if line.endswith("25!")]) == 4
    assert a.has_printed("error KError(25)")
    assert len(requests_of(a, "Join")) == 2


def test_notifications_list_claimed_and_released_partitions() -> None:
    stage, a = stage_with_member()
    add_second_member(stage)
    lines = [line for *_, line in a.printed if line.startswith("error rebalance")]
    assert [line.partition("&")[2] for line in lines[:4]] == [
        "{Type:rebalance start Claimed:map[] Released:map[] Current:map[]}",
        "{Type:rebalance OK Claimed:map[t:[0 1]] Released:map[] Current:map[t:[0 1]]}",
        "{Type:rebalance start Claimed:map[] Released:map[] Current:map[t:[0 1]]}",
        "{Type:rebalance OK Claimed:map[t:[]] Released:map[t:[1]] Current:map[t:[0]]}",
    ]


def test_notifications_are_an_option() -> None:
    _, a = stage_with_member(**{"Return.Notifications": False})
    assert not a.has_printed("error")


def test_s1_13_close_commits_and_leaves_without_dwelling() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)
    assert [line.split()[0] for line in requests_of(a, "Commit", "Leave")] == ["Commit", "Leave"]


@pytest.mark.parametrize("when", range(0, 140, 4))
def test_close_completes_at_any_time(when: int) -> None:
    stage = Stage({"t": 2})
    a = stage.add_member("A", sarama_cluster, **USUAL)
    a.run_command("subscribe t")
    stage.run(when)
    a.run_command("close")
    assert stage.run(10_000, until=lambda: a.closed)


def test_unsubscribe_closes_the_consumer_and_the_next_one_joins_as_a_new_member() -> None:
    stage, a = stage_with_member()
    a.run_command("unsubscribe")
    stage.run(1_000)
    assert len(requests_of(a, "Leave")) == 1
    a.run_command("subscribe t")
    stage.run(2_000)
    assert requests_of(a, "Join")[1].startswith("Join v0 id=- ")
