"""joinSync takes each branch of S3-19 (docs/lessons/003-sarama-walk.md), and retries within its limit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kproto.messages.join_group import JoinGroupResponse
from kproto.messages.metadata import MetadataResponse
from kproto.messages.sync_group import SyncGroupResponse
from kproto.models import java, sarama
from kproto.models.sarama import consumer_group_join
from tests.models.sarama.stage import (
    USUAL,
    Mutate,
    add_second_member,
    assert_mutant_fails,
    change_responses,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
    times_printed,
)
from tests.models.stage import Stage

JOINED = "0 gen=1 id=A1 leader of 1 proto=range"


def test_the_first_join_sends_the_requests_of_sarama() -> None:
    _, a = stage_with_member()
    proto = "range(v2 topics=t own=none gen=-1)"
    assert a.requests[:7] == [
        "Metadata v11 all",
        "Metadata v11 t",
        "Find v3 g -> 0",
        f"Join v8 id=- sess=6000 reb=30000 reason=null {proto} -> 79 id=A1",
        f"Join v8 id=A1 sess=6000 reb=30000 reason=null {proto} -> {JOINED}",
        "Metadata v11 t",
        "Sync v5 gen=1 id=A1 assign A1=t:0,t:1 -> 0 got=t:0,t:1",
    ]


def test_s3_19_b_a_join_without_a_response_closes_the_connection_and_fails() -> None:
    stage, a = stage_with_client()
    a.hold("Join", 500)
    a.run_command("subscribe t")
    stage.run(until=lambda: any(line.api == "Join" for line in a.lines))
    a.drop_connections()
    stage.run(200)
    assert a.has_printed("error errors.errorString")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert [line for line in requests_of(a, "Join") if line.endswith("silence")]


def test_s3_19_c_a_successful_join_keeps_the_member_id_for_the_next_generation() -> None:
    stage, a = stage_with_member()
    add_second_member(stage)
    assert requests_of(a, "Join")[2].startswith(
        'Join v8 id=A1 sess=6000 reb=30000 reason="group is rebalancing"'
    )


@pytest.mark.rule("M38", "M39", "M48", "M49")
@pytest.mark.parametrize("code", [22, 25])
@pytest.mark.parametrize("api", ["Join", "Sync"])
def test_s3_19_d_an_unknown_member_resets_its_id_and_rejoins_without_using_a_retry(
    code: int, api: str
) -> None:
    stage, a = stage_with_client()
    a.inject(api, *([0, *[code] * 9] if api == "Join" else [code] * 9))
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    failed = [line for line in requests_of(a, api) if f"-> {code}!" in line]
    assert len(failed) == 9
    assert not a.has_printed("error")
    # One coordinator lookup precedes the first join, and one precedes the session's offset requests.
    assert len(requests_of(a, "Find")) == 2
    index = requests_of(a, "Join", "Sync").index(failed[0])
    assert "id=- " in requests_of(a, "Join", "Sync")[index + 1]


@pytest.mark.parametrize("code", [14, 15, 16, 27])
@pytest.mark.parametrize("api", ["Join", "Sync"])
def test_s3_19_e_f_j_retriable_errors_wait_two_seconds_look_up_and_keep_the_id(code: int, api: str) -> None:
    stage, a = stage_with_client()
    a.inject(api, *([0, code] if api == "Join" else [code]))
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    lines = requests_of(a, "Join", "Sync", "Find")
    position = next(number for number, line in enumerate(lines) if f"-> {code}!" in line)
    assert lines[position + 1] == "Find v3 g -> 0"
    assert lines[position + 2].startswith("Join v8 id=A1 ")
    assert (
        2_000 <= time_of_request(a, "Find", 1) - time_of_request(a, api, 1 if api == "Join" else 0) <= 2_010
    )


@pytest.mark.parametrize(("codes", "tries"), [([0, *[27] * 4], 5), ([0, *[27] * 5], 5)])
def test_s3_19_f_there_are_four_retries(codes: list[int], tries: int) -> None:
    stage, a = stage_with_client()
    a.inject("Join", *codes)
    a.run_command("subscribe t")
    stage.run(20_000, until=lambda: a.has_printed("assigned") or a.has_printed("error"))
    with_id = [line for line in requests_of(a, "Join") if "id=A1 sess" in line]
    assert len(with_id) == tries
    assert a.has_printed("error KError(27)") == (len(codes) == 6)


def test_each_consume_has_its_own_retries() -> None:
    stage, a = stage_with_client()
    a.inject("Join", 0, *[27] * 8)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert len(times_printed(a, "error")) == 1
    assert time_of_request(a, "Join", 6) - times_printed(a, "error")[0] >= 300


@pytest.mark.parametrize("code", [23, 24, 26, 30, 81, 82])
def test_s3_19_g_any_other_error_is_returned_and_consume_is_called_again_with_the_same_id(code: int) -> None:
    stage, a = stage_with_client()
    a.inject("Join", 0, code)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert a.has_printed(f"error KError({code})")
    assert requests_of(a, "Join")[2].startswith("Join v8 id=A1 ")
    assert 300 <= time_of_request(a, "Join", 2) - time_of_request(a, "Join", 1) <= 320


def test_s3_19_h_the_leader_refreshes_the_metadata_of_all_topics_of_the_group() -> None:
    stage, a = stage_with_member()
    stage.topic("u", 1)
    b = stage.add_member("B", a.client, **a.conf)
    b.run_command("subscribe u")
    assert stage.run(until=lambda: b.has_printed("assigned u:0"))
    metadata_requests = [line for line in a.requests if line.startswith("Metadata v11")]
    assert metadata_requests[-1] == "Metadata v11 t,u"


def test_s3_19_i_a_sync_without_a_response_fails_and_the_member_rejoins_with_its_id() -> None:
    stage, a = stage_with_client()
    a.hold("Sync", 500)
    a.run_command("subscribe t")
    stage.run(until=lambda: any(line.api == "Sync" for line in a.lines))
    a.drop_connections()
    stage.run(until=lambda: a.has_printed("assigned"))
    assert a.has_printed("error")
    assert requests_of(a, "Join")[2].startswith("Join v8 id=A1 ")


def test_s3_19_k_an_empty_assignment_is_a_session_without_claims() -> None:
    stage, a = stage_with_member(partitions=1)
    b = add_second_member(stage)
    member = next(candidate for candidate in (a, b) if candidate.printed[-1][2] in ("assigned", "assigned "))
    assert requests_of(member, "Sync")[-1].endswith("got=none")
    stage.run(2_000)
    assert (
        len([line for line in requests_of(member, "Heartbeat") if "gen=2" in line and line.endswith("-> 0")])
        > 5
    )


@pytest.mark.rule("R226")
def test_s3_19_l_sticky_members_send_back_the_user_data_of_their_assignment() -> None:
    stage, a = stage_with_member(assignors=["sticky"])
    add_second_member(stage, assignors=["sticky"])
    joins = requests_of(a, "Join")
    assert "ud=" not in joins[0]
    assert "sticky(v2 topics=t own=none gen=-1 ud=" in joins[2]


def test_s3_19_m_the_session_has_the_member_id_and_generation_of_the_join() -> None:
    _, a = stage_with_member()
    session = a.state.group.session
    assert (session.generation, session.member_id) == (1, a.state.member_id)


def test_the_second_request_of_kip_394_repeats_the_reason() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 25)
    a.inject("Join", 25)
    stage.run(3_000)
    reasons = [line.split("reason=")[1].split('"')[1] for line in requests_of(a, "Join")[2:]]
    assert reasons == ["member id is not known by the group coordinator"] * 3


def test_a_canceled_context_ends_the_backoff() -> None:
    # Mirrors sarama's TestConsumerShouldNotRetrySessionIfContextCancelled
    stage, a = stage_with_client()
    a.inject("Join", 0, 27)
    a.run_command("subscribe t")
    stage.run(1_000)
    a.run_command("unsubscribe")
    stage.run(5_000)
    assert a.has_printed("error errors.errorString context canceled")
    assert len(requests_of(a, "Join")) == 2


def test_close_ends_the_backoff_and_leaves() -> None:
    stage, a = stage_with_client()
    a.inject("Join", 0, 27)
    a.run_command("subscribe t")
    stage.run(1_000)
    a.run_command("close")
    assert stage.run(500, until=lambda: a.closed)
    assert a.requests[-1] == 'Leave v5 A1 reason="the consumer is being closed" -> 0'


def test_offset_load_in_progress_is_retried_in_join_and_sync() -> None:
    # Mirrors sarama's TestConsumerGroupNewSessionDuringOffsetLoad
    stage, a = stage_with_client()
    a.inject("Join", 0, 14)
    a.inject("Sync", 14)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 10)


def test_a_protocol_that_was_not_offered_is_reported() -> None:
    stage, a = stage_with_client()

    def choose_another(response: Any) -> None:
        response.protocol_name = "best"

    change_responses(a, JoinGroupResponse, choose_another, 2)
    a.run_command("subscribe t")
    stage.run(100)
    assert a.has_printed("error errors.errorString unable to find selected strategy: best")
    assert requests_of(a, "Sync") == []


def test_a_response_without_an_assignment_is_a_session_without_claims() -> None:
    stage, a = stage_with_client()

    def remove_assignment(response: Any) -> None:
        response.assignment = b""

    change_responses(a, SyncGroupResponse, remove_assignment)
    a.run_command("subscribe t")
    stage.run(1_000)
    assert [line for *_, line in a.printed[1:]] == ["assigned "]
    assert (a.state.generation, a.state.group.session.claims) == (1, ())


def test_an_unreadable_assignment_is_reported_and_the_member_joins_again() -> None:
    stage, a = stage_with_client()

    def corrupt(response: Any) -> None:
        response.assignment = b"\0\1"

    change_responses(a, SyncGroupResponse, corrupt)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 10)
    assert a.has_printed("error sarama.PacketDecodingError")
    assert [line.api for line in a.lines].count("Sync") == 2


def test_a_topic_of_another_member_that_does_not_exist_fails_the_leaders_join() -> None:
    stage = Stage({"t": 1}, **{"auto.create.topics.enable": "false"})
    a = stage.add_member("A", sarama, **USUAL)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    java_member = stage.add_member("J", java, reset="earliest", assignors=["range"], session_ms=6_000)
    java_member.run_command("subscribe t nope")
    assert stage.run(5_000, until=lambda: a.has_printed("error KError(3)"))
    assert len(requests_of(a, "Sync")) == 1


@pytest.mark.parametrize("command", ["close", "unsubscribe"])
def test_a_join_that_backs_off_ends_with_the_call(command: str) -> None:
    stage, a = stage_with_client()
    a.inject("Join", 0, *[15] * 10)
    a.run_command("subscribe t")
    stage.run(100)
    joins = len(requests_of(a, "Join"))
    a.run_command(command)
    stage.run(10_000)
    assert len(requests_of(a, "Join")) == joins
    assert a.closed is (command == "close")


def test_a_consume_that_is_canceled_during_its_refresh_does_not_join() -> None:
    stage, a = stage_with_client()
    stage.run(100)
    a.hold("Metadata", 500)
    a.run_command("subscribe t")
    stage.run(100)
    a.run_command("unsubscribe")
    stage.run(2_000)
    assert requests_of(a, "Join", "Find") == []
    assert a.has_printed("error errors.errorString context canceled")


@pytest.mark.parametrize("retries", [0, 1])
def test_a_failed_lookup_before_a_join_uses_one_retry(retries: int) -> None:
    stage, a = stage_with_client(**{"Group.Rebalance.Retry.Max": retries})
    a.inject("Find", 16, *[16] * 2 * retries)
    a.run_command("subscribe t")
    assert stage.run(10_000, until=lambda: a.has_printed("error"))
    assert a.has_printed("error KError(16)")
    assert requests_of(a, "Join") == []
    # The first lookup uses no retry. If one retry is allowed, the second lookup uses it, and the third lookup
    # fails when no retry is left.
    assert len(requests_of(a, "Find")) == 1 + 2 * retries
    if retries:
        times = [time_of_request(a, "Find", number) for number in range(3)]
        assert [later - earlier >= 2_000 for earlier, later in pairwise(times)] == [True, True]


@pytest.mark.parametrize(("responses", "errors"), [(1, 0), (2, 1)])
def test_the_leader_refreshes_a_topic_without_partitions_once_more(responses: int, errors: int) -> None:
    stage, a = stage_with_client()

    def remove_partitions(response: Any) -> None:
        response.topics[0].partitions = []

    def on_join(response: Any) -> None:
        change_responses(a, MetadataResponse, remove_partitions, responses)

    change_responses(a, JoinGroupResponse, on_join, 2)
    a.run_command("subscribe t")
    assert stage.run(2_000, until=lambda: a.has_printed("error") or a.has_printed("assigned"))
    assert a.has_printed("error KError(3)") is bool(errors)
    requests = [line for line in a.requests if line.startswith(("Metadata", "Join", "Sync"))]
    start = next(number for number, line in enumerate(requests) if "leader of 1" in line)
    assert requests[start + 1 : start + 3] == ["Metadata v11 t"] * 2
    assert len([line for line in requests if line.startswith("Sync")]) == 1 - errors


@pytest.mark.parametrize(("release", "refreshes"), [("1.38.1", ["u", "w"]), ("1.61.1", ["t,u,w", "u", "w"])])
def test_the_leader_refreshes_each_topic_that_is_not_cached(release: str, refreshes: list[str]) -> None:
    """The leader refreshes the topics that are not cached (u and w) one after the other.

    Release 1.61.1 first refreshes all topics of the group at once. In this test the response to that refresh
    contains no partitions of u and w, so they are still not cached.
    """
    stage, a = stage_with_member(**{"Release": release, "Offsets.Retention": 60_000})
    stage.topic("u", 1)
    stage.topic("w", 1)

    def remove_new_partitions(response: Any) -> None:
        for topic in response.topics if len(response.topics) == 3 else ():
            topic.partitions = topic.partitions if topic.name == "t" else []

    change_responses(a, MetadataResponse, remove_new_partitions, 10)
    b = stage.add_member("B", a.client, **a.conf)
    b.run_command("subscribe u w")
    assert stage.run(until=lambda: b.has_printed("assigned u:0 w:0"))
    refreshed_topics = [line.split()[2] for line in a.requests if line.startswith("Metadata")]
    assert refreshed_topics[-1 - len(refreshes) :] == ["t", *refreshes]


def test_a_session_that_is_canceled_during_its_sync_ends_after_its_setup() -> None:
    stage, a = stage_with_client()
    a.hold("Sync", 500)
    a.run_command("subscribe t")
    stage.run(200)
    a.run_command("unsubscribe")
    stage.run(3_000)
    assert [line for *_, line in a.printed[1:]] == ["assigned t:0 t:1", "revoked t:0 t:1"]
    assert a.records == []
    assert a.state.group.session is None
    assert not a.has_printed("error")


# -- mutants: mistakes in the model that a test must detect


def keep_unknown_member_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer_group_join, "_RESETS_MEMBER_ID", frozenset())


def never_retry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer_group_join, "_RETRIED_AFTER_BACKOFF", frozenset())


def use_no_retry(patch: pytest.MonkeyPatch) -> None:
    def rediscovered(join: consumer_group_join.Join, trouble: object) -> None:
        join.move(consumer_group_join.S.FINDING_COORDINATOR)
        consumer_group_join._join_sync(join)

    row = {
        **consumer_group_join.Join.TABLE["coordinator_found"],
        consumer_group_join.S.REDISCOVERING: rediscovered,
    }
    patch.setattr(
        consumer_group_join.Join, "TABLE", {**consumer_group_join.Join.TABLE, "coordinator_found": row}
    )


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (
        keep_unknown_member_ids,
        lambda: test_s3_19_d_an_unknown_member_resets_its_id_and_rejoins_without_using_a_retry(25, "Join"),
    ),
    (
        never_retry,
        lambda: test_s3_19_e_f_j_retriable_errors_wait_two_seconds_look_up_and_keep_the_id(27, "Sync"),
    ),
    (use_no_retry, lambda: test_s3_19_f_there_are_four_retries([0, *[27] * 5], 5)),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
