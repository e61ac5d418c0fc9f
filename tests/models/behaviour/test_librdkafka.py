"""librdkafka's model sends the original's requests, and reproduces the race between its two threads (S0)."""

from __future__ import annotations

import random

import pytest

from kproto.broker.machine import FailRequests
from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.models import contract as c
from kproto.models import librdkafka
from kproto.models.librdkafka import cgrp_rebalance, offset_store, toppar
from kproto.models.librdkafka.constants import BEGINNING, END, INVALID, STORED, offset2str
from kproto.models.librdkafka.state import CgrpJoinState, FetchOp, FetchPos, Toppar, TopparFetchState
from kproto.testing.world import ModelClient, World
from kproto.wire.message import Message

from ..stage import Stage, StageMember

T0 = TopicPartition("t", 0)
TIMES = {"session_ms": 6000, "heartbeat_ms": 300, "auto_commit_ms": 1000, "metadata_ms": 1000}


def stage_with_member(topics: int = 2, **conf: object) -> tuple[Stage, StageMember]:
    stage = Stage({"t": topics})
    stage.produce("t", range(topics), 10)
    a = stage.add_member("A", librdkafka, **{"reset": "earliest", **TIMES, **conf})
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(400)
    return stage, a


def add_second_member(stage: Stage, **conf: object) -> StageMember:
    b = stage.add_member("B", librdkafka, **{"reset": "earliest", **TIMES, **conf})
    b.run_command("subscribe t")
    assert stage.run(until=lambda: b.has_printed("assigned"))
    stage.run(600)
    return b


def requests_of(member: StageMember, *apis: str) -> list[str]:
    return [line for line in member.requests if line.split()[0] in apis]


# ---- requests


def test_a_join_sends_the_originals_requests() -> None:
    _, a = stage_with_member()
    claim = "(v3 topics=t own=none gen=-1 ud=0b)"
    join = f"sess=6000 reb=300000 reason=null range{claim} roundrobin{claim}"
    assert [line for line in a.requests if not line.startswith(("Metadata", "Find"))] == [
        f"Join v5 id=- {join} -> 79 id=A1",
        f"Join v5 id=A1 {join} -> 0 gen=1 id=A1 leader of 1 proto=range",
        "Sync v3 gen=1 id=A1 assign A1=t:0,t:1 -> 0 got=t:0,t:1",
        "Heartbeat v3 gen=1 id=A1 -> 0",
        "OffsetFetch v9 stable=True t:0,t:1 -> 0 t:0@-1,t:1@-1",
        "ListOffsets v7 iso=1 t:1@-2 -> 0 t:1@0",
        "ListOffsets v7 iso=1 t:0@-2 -> 0 t:0@0",
    ]


def test_an_eager_member_commits_after_the_revoke_callback_and_then_rejoins() -> None:
    stage, a = stage_with_member()
    add_second_member(stage)
    index = a.requests.index("Heartbeat v3 gen=1 id=A1 -> 27")
    revoked_at = next(order for _, order, line in a.printed if line.startswith("revoked"))
    commit = next(line for line in a.lines if str(line).startswith("Commit v9 gen=1"))
    assert a.requests[index + 1].startswith("Commit v9 gen=1 id=A1 t:0@10/e0,t:1@10/e0 -> 0")
    assert a.requests[index + 2].startswith("Join v5 id=A1")
    assert revoked_at < commit.number


def test_cooperative_partitions_move_one_by_one_from_the_first() -> None:
    stage, a = stage_with_member(4, assignors=["cooperative-sticky"])
    add_second_member(stage, assignors=["cooperative-sticky"])
    stage.run(2000)
    joins = [line.split("cooperative-sticky")[1].split(" ud")[0] for line in requests_of(a, "Join")[2:]]
    assert joins[:2] == ["(v3 topics=t own=t:0,t:1,t:2,t:3 gen=1", "(v3 topics=t own=t:2,t:3 gen=2"]
    assert requests_of(a, "Sync")[1] == "Sync v3 gen=2 id=A1 assign A1=t:2,t:3 B1=none -> 0 got=t:2,t:3"


def test_1_9_uses_older_versions_and_sends_no_generation() -> None:
    _, a = stage_with_member(version="1.9")
    assert requests_of(a, "Join")[0].endswith(
        "range(v1 topics=t own=none ud=0b) roundrobin(v1 topics=t own=none ud=0b) -> 79 id=A1"
    )
    assert requests_of(a, "OffsetFetch")[0].startswith("OffsetFetch v7")
    assert requests_of(a, "ListOffsets")[0].startswith("ListOffsets v2")


def test_every_member_rejoins_when_partitions_are_added() -> None:
    stage, a = stage_with_member()
    b = add_second_member(stage)
    b.inject("Heartbeat", *[0] * 50)
    before = len(requests_of(b, "Join"))
    stage.grow("t", 4)
    stage.run(until=lambda: len(requests_of(b, "Join")) > before)
    assert "Heartbeat v3 gen=2 id=B1 -> 27" not in b.requests[-1]
    assert stage.run(until=lambda: a.has_printed("assigned", 3))


def test_new_partitions_noticed_in_the_assign_callback_cause_an_eager_rejoin_without_revoke() -> None:
    world = World({"t": 2})
    a = world.join("a", librdkafka, topics=["t"], group_id="g", assignors=("range",), metadata_ms=1_000)
    a.callback_ms = 3_000
    assert world.run(10_000, until=lambda: bool(a.calls))
    joins = len(world.requests_of(a, JoinGroupRequest))
    world.grow("t", 4)
    world.run(2_000)
    assert len(world.requests_of(a, JoinGroupRequest)) > joins
    assert [kind for kind, _ in a.calls] == ["assigned"]


def test_heartbeats_continue_while_the_application_does_not_poll() -> None:
    """Heartbeats continue while the application neither polls nor commits.

    The heartbeats are sent by a timer of librdkafka's main loop, not by calls of the application.
    """
    stage = Stage({"t": 2}, **{"group.initial.rebalance.delay.ms": "1000"})
    a = stage.add_member("A", librdkafka, **{**TIMES, "metadata_ms": 300_000}, auto_commit=False)
    a.do(c.SubscribeCalled(("t",)))
    stage.run(60_000)
    assert len(requests_of(a, "Heartbeat")) > 30
    assert len(requests_of(a, "Join")) == 2


@pytest.mark.parametrize("code", [23, 26, 27, 81])
def test_a_join_group_error_is_reported_and_the_join_retried(code: int) -> None:
    stage, a = stage_with_member()
    a.inject("Join", code)
    add_second_member(stage)
    assert any(line.startswith("error") for *_, line in a.printed)
    assert requests_of(a, "Join")[-1].split(" -> ")[1].startswith("0 gen=2")


def test_coordinator_load_in_progress_repeats_the_sync_group() -> None:
    stage, a = stage_with_member()
    a.inject("Sync", 14)
    add_second_member(stage)
    first, two = requests_of(a, "Sync")[1:3]
    assert (first.split(" -> ")[0], first.split(" -> ")[1]) == (two.split(" -> ")[0], "14!")


def test_an_unknown_member_loses_everything_without_a_commit_and_rejoins_without_an_id() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.inject("Heartbeat", 25)
    stage.run(until=lambda: a.has_printed("lost"))
    stage.run(10)
    assert not requests_of(a, "Commit")
    assert requests_of(a, "Join")[2].startswith("Join v5 id=- ")


def test_illegal_generation_of_a_commit_during_a_join_only_fails_the_commit() -> None:
    stage, a = stage_with_member(4, auto_commit=False, assignors=["cooperative-sticky"])
    a.hold("Join", 1000)
    b = stage.add_member("B", librdkafka, reset="earliest", assignors=["cooperative-sticky"], **TIMES)
    b.run_command("subscribe t")
    stage.run(until=lambda: len(requests_of(a, "Join")) == 3)
    stage.run(20)
    a.run_command("commit")
    stage.run(until=lambda: a.has_printed("commit"))
    assert a.has_printed("commit ILLEGAL_GENERATION")
    assert not a.has_printed("lost")
    assert a.state.generation != -1


def test_a_fenced_static_member_reports_once_and_sends_nothing_more() -> None:
    stage, a = stage_with_member(instance="ia", auto_commit=False)
    a.inject("Heartbeat", 82)
    stage.run(until=lambda: a.has_printed("error _FATAL"))
    before = len(requests_of(a, "Heartbeat", "Join", "Commit"))
    stage.run(20_000)
    assert len(requests_of(a, "Heartbeat", "Join", "Commit")) == before
    assert not a.has_printed("lost")


def test_m111_without_responses_the_session_expires_by_the_members_own_clock() -> None:
    stage, a = stage_with_member()
    a.hold("Heartbeat", 20_000)
    assert stage.run(8_000, until=lambda: a.has_printed("lost"))
    assert not requests_of(a, "Leave")


def test_m112_a_member_without_polls_leaves_and_rejoins_at_the_next_poll() -> None:
    stage, a = stage_with_member(max_poll_ms=6000)
    a.run_command("sleep 9000")
    assert stage.run(8_000, until=lambda: bool(requests_of(a, "Leave")))
    joins = len(requests_of(a, "Join"))
    stage.run(1_500)
    assert len(requests_of(a, "Join")) == joins
    assert not a.has_printed("lost")
    assert stage.run(3_000, until=lambda: a.has_printed("error _MAX_POLL_EXCEEDED"))
    order = {line.split()[0]: number for _, number, line in a.printed}
    assert order["lost"] < next(number for _, number, line in a.printed if line.startswith("error"))


def test_a_static_member_leaves_when_it_unsubscribes_but_not_when_it_closes() -> None:
    stage, a = stage_with_member(instance="ia")
    a.run_command("unsubscribe")
    stage.run(500)
    assert len(requests_of(a, "Leave")) == 1
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned", 2))
    a.run_command("close")
    assert stage.run(until=lambda: a.closed)
    assert len(requests_of(a, "Leave")) == 1


def test_a_lost_coordinator_connection_causes_a_lookup_and_validates_positions() -> None:
    stage, a = stage_with_member()
    for wire in list(a.wires.values()):
        wire.break_connection("reset")
    stage.run(3000)
    assert requests_of(a, "EpochEnd") == ["EpochEnd v2 t:0@e0 -> 0", "EpochEnd v2 t:1@e0 -> 0"]
    assert a.state.generation == 1
    assert len(requests_of(a, "Join")) == 2


# ---- commits


@pytest.mark.rule("M126")
def test_the_timer_commits_newer_offsets_and_an_unassign_commits_them_again() -> None:
    stage, a = stage_with_member()
    stage.run(1000)
    assert len(requests_of(a, "Commit")) == 1
    stage.run(3000)
    assert len(requests_of(a, "Commit")) == 1
    a.run_command("close")
    stage.run(until=lambda: a.closed)
    assert len(requests_of(a, "Commit")) == 2


@pytest.mark.parametrize(
    ("options", "timer", "closing"),
    [
        ({"auto_commit": True, "enable.auto.offset.store": False}, 0, 0),
        ({"auto_commit": False}, 0, 0),
        ({"auto_commit": True}, 1, 2),
        ({"auto_commit": True, "auto_commit_ms": 0}, 0, 1),
    ],
)
def test_s0_11_both_commit_paths(options: dict[str, object], timer: int, closing: int) -> None:
    stage, a = stage_with_member(**options)
    stage.run(2500)
    assert len(requests_of(a, "Commit")) == timer
    a.run_command("close")
    stage.run(until=lambda: a.closed)
    assert len(requests_of(a, "Commit")) == closing


@pytest.mark.rule("M126")
def test_s0_12_a_delivered_record_stores_its_offset_plus_one() -> None:
    stage, a = stage_with_member(auto_commit=False)
    stage.run(500)
    assert a.state.partitions[T0].stored_position.offset == 10
    assert a.state.partitions[T0].committed_position.offset == INVALID


def test_s0_12_the_end_of_a_partition_is_stored_only_if_the_fetcher_started_at_stored() -> None:
    state = librdkafka.start(c.ModelConfig(client_id="a", group_id="g"))
    toppar_state = Toppar(T0, state=TopparFetchState.ACTIVE, started=True, eof_offset=9)
    toppar.stop(state, toppar_state)
    assert toppar_state.stored_position.offset == INVALID
    toppar_state = Toppar(
        T0, state=TopparFetchState.ACTIVE, started=True, eof_offset=9, stores_offset_at_stop=True
    )
    toppar.stop(state, toppar_state)
    assert toppar_state.stored_position.offset == 9


def test_store_is_rejected_with_auto_store_and_for_unassigned_partitions() -> None:
    stage, a = stage_with_member(auto_commit=False, **{"enable.auto.offset.store": False})
    assert offset_store.store(a.state, {T0: 4}) is None
    assert offset_store.store(a.state, {TopicPartition("t", 9): 4}) == ("_STATE", "Local: Erroneous state")
    a.run_command("commit")
    stage.run(100)
    assert requests_of(a, "Commit") == ["Commit v9 gen=1 id=A1 t:0@4/e-1 -> 0"]
    _, other_member = stage_with_member()
    assert offset_store.store(other_member.state, {T0: 4}) is not None


def test_a_commit_without_offsets_is_no_offset() -> None:
    stage, a = stage_with_member(auto_commit=False)
    for _ in range(2):
        a.run_command("commit")
    stage.run(200)
    assert [line.split()[1] for *_, line in a.printed if line.startswith("commit")] == ["ok", "_NO_OFFSET"]


# ---- subscribe, assign, seek


@pytest.mark.rule("M102")
def test_s0_6_an_eager_resubscribe_to_the_same_topics_revokes_and_rejoins_without_leaving() -> None:
    stage, a = stage_with_member()
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned", 2))
    assert [line.split()[0] for *_, line in a.printed if line.split()[0] in ("assigned", "revoked")] == [
        "assigned",
        "revoked",
        "assigned",
    ]
    assert not requests_of(a, "Leave")


def test_s0_6_a_cooperative_resubscribe_to_the_same_topics_does_nothing() -> None:
    stage, a = stage_with_member(assignors=["cooperative-sticky"])
    a.run_command("subscribe t")
    stage.run(2000)
    assert not a.has_printed("revoked")
    assert len(requests_of(a, "Join")) == 2


@pytest.mark.rule("M102")
def test_s0_7_a_subscribe_during_a_rebalance_is_deferred() -> None:
    stage, a = stage_with_member()
    stage.topic("u", 1)
    a.run_command("poll off")
    second_one = stage.add_member("B", librdkafka, reset="earliest", **TIMES)
    second_one.run_command("subscribe t")
    stage.run(until=lambda: a.state.state is CgrpJoinState.WAIT_UNASSIGN_CALL)
    a.do(c.SubscribeCalled(("u",)))
    stage.run(20)
    assert a.state.subscription == ("t",)
    assert a.state.next_subscription == ("u",)
    a.run_command("poll on")
    assert stage.run(until=lambda: a.has_printed("assigned u:0"))


@pytest.mark.rule("M101")
def test_assign_calls_of_the_wrong_protocol_fail_with_state() -> None:
    _, a = stage_with_member()
    a.do(c.AssignCalled({T0: 3}, "add"))
    assert a.has_printed("error _STATE")
    _, b = stage_with_member(assignors=["cooperative-sticky"])
    b.do(c.AssignCalled({T0: 3}))
    assert b.has_printed("error _STATE")


@pytest.mark.rule("M101")
def test_nothing_is_fetched_until_the_application_answers_a_revocation() -> None:
    stage, a = stage_with_member()
    a.run_command("poll off")
    stage.add_member("B", librdkafka, reset="earliest", **TIMES).run_command("subscribe t")
    assert stage.run(until=lambda: a.state.state is CgrpJoinState.WAIT_UNASSIGN_CALL)
    stage.run(1_000)
    produced_at = stage.now
    stage.produce("t", range(2), 10)
    stage.run(2_000)
    assert [line for line in a.lines if line.api == "Fetch" and line.now >= produced_at] == []


def test_s0_8_9_seek_fails_before_the_fetcher_starts_and_to_stored() -> None:
    stage, a = stage_with_member(auto_commit=False)
    a.do(c.SeekCalled(T0, STORED))
    assert a.has_printed("error _INVALID_ARG")
    a.do(c.SeekCalled(TopicPartition("t", 7), 1))
    assert a.has_printed("error _UNKNOWN_PARTITION")
    assert librdkafka.assigned_offsets(a.state)[T0] == STORED
    a.do(c.SeekCalled(T0, 4))
    assert librdkafka.assigned_offsets(a.state)[T0] == STORED
    assert librdkafka.position(a.state, T0) == INVALID
    a.records.clear()
    stage.run(300)
    assert [record.offset for record in a.records if record.partition == T0] == [4, 5, 6, 7, 8, 9]
    assert librdkafka.position(a.state, T0) == 10


@pytest.mark.rule("M146")
def test_s0_16_logical_offsets_have_names() -> None:
    assert (STORED, INVALID, BEGINNING, END) == (-1000, -1001, -2, -1)
    names = [offset2str(offset) for offset in (STORED, INVALID, BEGINNING, END, -2003, 7)]
    assert names == ["STORED", "INVALID", "BEGINNING", "END", "TAIL(3)", "7"]


# ---- scenario S0: the race between the two threads of the original


class Handler:
    """The program of kproto/scenarios/offset_minus_1000.py.

    The program subscribes, assigns, seeks and polls on a single thread of the application.
    """

    def __init__(self, delay_ms: int = 3000, **extra: object) -> None:
        delay = {"group.initial.rebalance.delay.ms": str(delay_ms)}
        self.stage = Stage({"test": 1}, **delay)
        self.stage.produce("test", [0], 9)
        self.tp = TopicPartition("test", 0)
        off = {"enable.auto.offset.store": False, "enable.partition.eof": True}
        helper = self.stage.add_member("H", librdkafka, group="test", auto_commit=False)
        self.stage.run(100)
        helper.do(c.CommitCalled(1, {self.tp: 5}))
        self.stage.run(until=lambda: 1 in helper.committed)
        helper.do(c.CloseCalled())
        self.app = self.stage.add_member(
            "A", librdkafka, group="test", auto_commit=False, reset="earliest", **off, **extra
        )
        self.stage.run(10)

    def subscribe(self) -> None:
        self.app.do(c.SubscribeCalled(("test",)))

    def request(self, polls: int = 4, timeout_ms: int = 400) -> tuple[dict[int, int], int | None, str]:
        """Assign, seek and poll.

        Return the last assignment, the first record's offset, and seek's error.
        """
        errors = len(self.app.printed)
        self.app.do(c.AssignCalled({self.tp: 2}))
        self.app.do(c.SeekCalled(self.tp, 2))
        refused = " ".join(line for *_, line in self.app.printed[errors:] if line.startswith("error"))
        first: int | None = None
        for _ in range(polls):
            records = self.app.poll(timeout_ms)
            first = records[0].offset if records and first is None else first
        assigned = {
            tp.partition: offset for tp, offset in librdkafka.assigned_offsets(self.app.state).items()
        }
        return assigned, first, refused

    def committed(self) -> int:
        return self.app.state.partitions[self.tp].committed_position.offset


def test_seed_a_the_first_request_ends_before_the_group_has_joined() -> None:
    handler = Handler()
    handler.subscribe()
    assert handler.request() == ({0: 2}, 2, "")


def test_seed_b_the_next_request_takes_the_rebalance_event_from_the_queue() -> None:
    handler = Handler()
    handler.subscribe()
    handler.request()
    handler.stage.run(5000)
    assert handler.request() == ({0: STORED}, 5, "")


def test_seed_c_a_delay_before_the_first_request_has_the_same_result() -> None:
    handler = Handler()
    handler.subscribe()
    handler.stage.run(5000)
    assert handler.request() == ({0: STORED}, 5, "")


def test_seed_d_requests_succeed_after_the_event_has_been_consumed() -> None:
    handler = Handler()
    handler.subscribe()
    handler.request()
    handler.stage.run(5000)
    handler.request()
    assert handler.request() == ({0: 2}, 2, "")


def test_seed_e_a_subscribe_inside_the_first_request_succeeds() -> None:
    handler = Handler()
    handler.subscribe()
    assert handler.request()[:2] == ({0: 2}, 2)


def test_seed_f_a_second_subscribe_queues_a_revocation_and_an_assignment() -> None:
    handler = Handler()
    handler.subscribe()
    handler.request()
    handler.stage.run(5000)
    handler.subscribe()
    assigned, _, _ = handler.request()
    assert assigned == {0: STORED}
    assert [line.split()[0] for *_, line in handler.app.printed if line[:3] in ("ass", "rev")] == [
        "assigned",
        "revoked",
        "assigned",
    ]


def test_seed_g_long_polls_take_the_event_and_restart_at_the_committed_offset() -> None:
    handler = Handler()
    handler.subscribe()
    assert handler.request(20)[:2] == ({0: STORED}, 2)
    offsets = [record.offset for record in handler.app.records]
    assert offsets == [2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8][: len(offsets)]
    assert 5 in offsets[4:]


def test_seed_h_a_group_without_initial_delay_joins_before_the_first_request() -> None:
    handler = Handler(delay_ms=0)
    handler.subscribe()
    handler.stage.run(50)
    assert handler.request()[:2] == ({0: STORED}, 5)


def test_seed_i_a_short_sleep_ends_before_the_join() -> None:
    handler = Handler()
    handler.subscribe()
    handler.stage.run(100)
    assert handler.request()[:2] == ({0: 2}, 2)


def test_s0_4_a_consumed_event_does_not_replace_the_assignment() -> None:
    handler = Handler(delay_ms=0)
    handler.subscribe()
    handler.app.poll(100)
    assert handler.request()[:2] == ({0: 2}, 2)


def test_s0_5_sleeping_does_not_prevent_the_race() -> None:
    handler = Handler(delay_ms=0)
    handler.subscribe()
    handler.stage.run(100)
    assert handler.request()[:2] == ({0: STORED}, 5)


def test_s0_10_the_committed_offset_never_changes() -> None:
    handler = Handler()
    handler.subscribe()
    for _ in range(3):
        handler.request()
        handler.stage.run(5000)
    assert not requests_of(handler.app, "Commit")
    assert handler.committed() == 5


def test_s0_13_the_end_of_a_partition_is_reported_once() -> None:
    handler = Handler()
    handler.subscribe()
    handler.request(40)
    ends = [line for *_, line in handler.app.printed if "_PARTITION_EOF" in line]
    # The partition's end is reported once with the manual assignment, and again after the group's assignment
    # has restarted the partition.
    assert len(ends) == 2
    assert ends[0] == (
        "error _PARTITION_EOF Fetch from broker 1 reached end of partition at offset 9 (HighwaterMark 9)"
    )


def test_s0_13_the_fetch_after_the_last_record_reports_the_end() -> None:
    handler = Handler()
    handler.app.do(c.AssignCalled({handler.tp: 8}))
    handler.app.poll(400)
    begun = handler.stage.now
    handler.app.poll(400)
    assert any("_PARTITION_EOF" in line for *_, line in handler.app.printed)
    assert handler.stage.now - begun >= 100  # A Fetch at the end of the log waits 100 ms for a record.


@pytest.mark.parametrize(("binding", "polls"), [("go", ["()", "()", "()", "5"]), ("c", ["5", "6", "7", "8"])])
def test_the_poll_of_go_ends_with_each_rebalance_and_other_bindings_keep_waiting(
    binding: str, polls: list[str]
) -> None:
    handler = Handler(delay_ms=0, binding=binding)
    handler.subscribe()
    handler.stage.run(1_000)
    # Three events: an ASSIGN, then a REVOKE, and another ASSIGN after the REVOKE has been answered.
    handler.subscribe()
    offsets_by_poll = [[str(offsets.offset) for offsets in handler.app.poll(400)] for _ in range(4)]
    assert ["".join(offsets) or "()" for offsets in offsets_by_poll] == polls


@pytest.mark.parametrize("seed", range(20))
def test_the_last_assign_wins(seed: int) -> None:
    """The last call of assign determines the assigned offset.

    The application assigns the partition by hand at offset 2. If a poll then delivers the group's assignment,
    the application assigns the partition again, at STORED.
    """
    draw = random.Random(seed)
    handler = Handler(draw.choice([0, 1000, 3000]))
    handler.subscribe()
    for _ in range(draw.randint(1, 4)):
        handler.stage.run(draw.randint(1, 2500))
        handler.app.do(c.AssignCalled({handler.tp: 2}))
        by_hand = len(handler.app.printed)
        for _ in range(draw.randint(0, 4)):
            handler.app.poll(draw.randint(50, 500))
        answered = any(line.startswith("assigned") for *_, line in handler.app.printed[by_hand:])
        assert librdkafka.assigned_offsets(handler.app.state)[handler.tp] == (STORED if answered else 2)


# ---- a mistake in the model changes the scenario


def test_mutant_an_event_answered_at_once_causes_no_race(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(
        state: librdkafka.LibrdkafkaState, event: cgrp_rebalance.RebalanceOp, out: list[c.ModelAction]
    ) -> None:
        cgrp_rebalance.move(
            state, CgrpJoinState.WAIT_ASSIGN_CALL if event.assign else CgrpJoinState.WAIT_UNASSIGN_CALL
        )
        cgrp_rebalance.answer_by_default(state, event, out)

    monkeypatch.setattr(cgrp_rebalance, "_enqueue_rebalance", at_once)
    handler = Handler()
    handler.subscribe()
    handler.request()
    handler.stage.run(5000)
    assert handler.request()[0] == {0: 2}


def looking_up(reset: str = "earliest") -> tuple[World, ModelClient]:
    """Return a cluster and a consumer that looks up its start offset in t-0, which has ten records."""
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.join("a", librdkafka, group_id="g", reset=reset)
    a.assign({T0: BEGINNING})
    assert world.run(until=lambda: bool(world.requests_of(a, ListOffsetsRequest)))
    return world, a


def test_a_seek_to_an_offset_during_a_lookup_is_replaced_by_a_second_lookup() -> None:
    """After the seek, librdkafka 2.16.1 ignores the ListOffsets response. It repeats the request after 500
    ms.
    """
    world, a = looking_up()
    a.seek(T0, 3)
    world.run(400)
    assert a.values() == []
    world.run(2_000)
    assert a.values() == [str(number) for number in range(10)]
    assert len(world.requests_of(a, ListOffsetsRequest)) == 2


def test_a_seek_to_an_end_of_the_log_during_a_lookup_causes_three_lookups() -> None:
    world, a = looking_up()
    a.seek(T0, END)
    world.run(2_000)
    world.write("t", 0, "new")
    assert world.run(until=lambda: bool(a.records))
    assert (a.values(), len(world.requests_of(a, ListOffsetsRequest))) == (["new"], 3)


def test_an_unassigned_partition_is_looked_up_again_after_an_outdated_response() -> None:
    """librdkafka 2.16.1 ignores the outdated ListOffsets response, and repeats the ListOffsets request.

    The request is repeated although the partition is no longer assigned. No record is delivered.
    """
    world, a = looking_up()
    a.assign({})
    world.run(5_000)
    assert (a.values(), len(world.requests_of(a, ListOffsetsRequest))) == ([], 2)


def test_a_timer_that_outlives_its_lookup_sends_list_offsets_in_any_state() -> None:
    """The second lookup fails and stops the fetcher. The timer of the first lookup continues, and sends a
    third ListOffsets.
    """
    world, a = looking_up(reset="error")
    world.step(1, FailRequests(ListOffsetsRequest.__api_key__ or 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1))
    a.seek(T0, END)
    world.run(100)
    assert a.state.partitions[T0].state is TopparFetchState.NONE
    world.run(5_000)
    assert len(world.requests_of(a, ListOffsetsRequest)) == 3


@pytest.mark.rule("M194")
def test_records_queued_before_a_seek_are_not_delivered() -> None:
    stage, a = stage_with_member(1)
    a.run_command("poll off")
    stage.run(100)
    stage.produce("t", [0], 10)
    stage.run(500)
    assert any(isinstance(item, FetchOp) for item in a.state.queue)
    a.records.clear()
    a.do(c.SeekCalled(T0, 4))
    a.run_command("poll on")
    stage.run(500)
    assert [record.offset for record in a.records] == list(range(4, 20))


@pytest.mark.rule("M194")
def test_a_partition_with_enough_queued_records_is_not_fetched() -> None:
    stage, a = stage_with_member(1, **{"queued.min.messages": 20})
    a.run_command("poll off")
    stage.run(200)
    for _ in range(10):
        stage.produce("t", [0], 10)
        stage.run(200)
    assert sum(len(item.records) for item in a.state.queue if isinstance(item, FetchOp)) == 20


def test_a_subscribed_topic_that_is_missing_is_reported() -> None:
    stage = Stage({"t": 1})
    a = stage.add_member("A", librdkafka, **{"reset": "earliest", **TIMES})
    a.run_command("subscribe missing")
    stage.run(3_000)
    assert a.has_printed("error UNKNOWN_TOPIC_OR_PART Subscribed topic not available: missing")


def test_a_resumed_partition_is_read_again() -> None:
    stage, a = stage_with_member(1)
    a.do(c.PauseCalled((T0,)))
    stage.run(1_000)
    a.records.clear()
    stage.produce("t", [0], 5)
    stage.run(1_000)
    assert a.records == []
    a.do(c.ResumeCalled((T0,)))
    assert stage.run(2_000, until=lambda: len(a.records) == 5)


def test_offset_not_available_repeats_the_lookup_without_an_error() -> None:
    stage = Stage({"t": 1})
    stage.produce("t", [0], 5)
    a = stage.add_member("A", librdkafka, **{"reset": "earliest", **TIMES})
    a.inject("ListOffsets", ErrorCode.OFFSET_NOT_AVAILABLE)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5)
    assert not a.has_printed("error")


def test_a_pause_returns_to_the_position_after_the_last_delivered_record() -> None:
    state = librdkafka.start(c.ModelConfig(client_id="a", group_id="g"))
    toppar_state = Toppar(
        T0, state=TopparFetchState.ACTIVE, fetch_position=FetchPos(9), app_position=FetchPos(5)
    )
    toppar.pause(state, toppar_state, library=True)
    assert (toppar_state.version, toppar_state.fetch_position.offset) == (1, 5)


@pytest.mark.parametrize("at", range(0, 300, 10))
def test_all_records_arrive_although_connections_break_at_any_time(at: int) -> None:
    stage = Stage({"t": 2})
    stage.produce("t", range(2), 10)
    a = stage.add_member("A", librdkafka, reset="earliest", **TIMES)
    a.run_command("subscribe t")
    stage.run(at + 1)
    a.drop_connections()
    assert stage.run(8000, until=lambda: {(record.partition, record.offset) for record in a.records} >= ALL)


@pytest.mark.parametrize(
    ("code", "most", "errors"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 4, ["TOPIC_AUTHORIZATION_FAILED"]),
        (ErrorCode.OFFSET_NOT_AVAILABLE, 40, []),
        pytest.param(ErrorCode.NOT_LEADER_OR_FOLLOWER, 40, [], marks=pytest.mark.thorough),
    ],
)
def test_failed_authorization_backs_off_ten_times_longer_and_leader_errors_are_not_reported(
    code: ErrorCode, most: int, errors: list[str]
) -> None:
    """rd_kafka_toppar_fetch_backoff and rd_kafka_fetch_reply_handle_partition_error."""
    world = World({"t": 1})
    a = world.join("a", librdkafka, topics=["t"], group_id="g", reset="earliest", fetch_wait_ms=1)
    assert world.run(until=lambda: bool(a.owned))
    world.run(2_000)
    world.step(1, FailRequests(FetchRequest.__api_key__ or 0, code, 10**6))
    world.run(100)
    before = len(world.requests_of(a, FetchRequest))
    world.run(20_000)
    assert most - 2 <= len(world.requests_of(a, FetchRequest)) - before <= most
    assert [report.name for report in a.reports if report.kind == "error"] == errors


ALL = {(TopicPartition("t", partition), offset) for partition in range(2) for offset in range(10)}


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            FetchRequest,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "Fetch from broker 1 failed: Broker: Topic",
        ),
        (
            FetchRequest,
            ErrorCode.CORRUPT_MESSAGE,
            "Fetch from broker 1 failed at offset 0 (leader epoch 0)",
        ),
        (JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, "JoinGroup failed: Broker: Group authoriz"),
        (
            ListOffsetsRequest,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "Failed to query logical offset BEGINNING",
        ),
    ],
)
def test_an_error_has_the_text_of_the_original(request_: type[Message], code: ErrorCode, text: str) -> None:
    """The error's text contains the description that rd_kafka_err2str returns for the code, not only the
    code's name.
    """
    world = World({"t": 1})
    world.write("t", 0, "x")
    world.step(1, FailRequests(request_.__api_key__ or 0, code, 1))
    a = world.join("a", librdkafka, topics=["t"], group_id="g", reset="earliest")
    world.run(5_000)
    [report] = [report for report in a.reports if report.kind == "error"]
    assert report.text.startswith(text)
