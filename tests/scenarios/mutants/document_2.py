"""Mutants for the scenarios of lesson 002 (docs/lessons/002-java-reliability.md).

The mutants change a consumer's options, Java's poll and rebalances, and the groups of Kafka 0.8.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from consumer import options
from consumer.option_checks import whole_number_from
from kproto.group.subscription import Assignment
from kproto.models import contract as c
from kproto.models import zookeeper
from kproto.models.java import (
    abstract_coordinator,
    consumer_coordinator,
    coordinator_lookup,
    fetcher,
    heartbeat_thread,
    kafka_consumer,
    offset_commits,
    plugins,
)
from kproto.models.java.kafka_consumer_metrics import KafkaConsumerMetrics
from kproto.models.java.state import BlockedOn, Continuation, JavaState
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_check_options = options._check_options
_poll, _on_join_complete, _assign, _on_callback_returned, _invoke_listener = (
    kafka_consumer.poll,
    consumer_coordinator.on_join_complete,
    consumer_coordinator.assign_from_subscribed,
    kafka_consumer.on_callback_returned,
    consumer_coordinator.invoke_listener,
)
_needs_join, _auto_commit = kafka_consumer.rejoin_needed_or_pending, offset_commits.maybe_auto_commit_async
_send_join_group = abstract_coordinator.send_join_group
_fetch, _run_heartbeats, _parse_coordinator = (
    fetcher.send_fetches,
    heartbeat_thread.run,
    coordinator_lookup.parse_find_coordinator,
)

# ---- options


def _drop_group_id(*arguments: Any) -> Any:
    return {name: value for name, value in _check_options(*arguments).items() if name != "group_id"}


def _drop_auto_commit(*arguments: Any) -> Any:
    values = _check_options(*arguments)
    values.pop("enable_auto_commit", None)
    return values


def _add_group_id(*arguments: Any) -> Any:
    return {"group_id": "default-group", **_check_options(*arguments)}


def _add_group_id_and_auto_commit(*arguments: Any) -> Any:
    return {**_add_group_id(*arguments), "enable_auto_commit": True}


# ---- poll


def _poll_in_any_thread(state: JavaState, event: c.PollCalled, out: Any) -> None:
    state.thread.state = BlockedOn.NOTHING
    _poll(state, event, out)


def _poll_without_subscription(state: JavaState, event: c.PollCalled, out: Any) -> None:
    state.auto_assigned = True
    _poll(state, event, out)


def _poll_without_timeout(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=True), out)


def _poll_with_timeout(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=False), out)


def _poll_in_one_turn(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, timeout_ms=min(event.timeout_ms, 100)), out)


def _fetch_in_next_poll(state: JavaState, out: Any) -> None:
    fetched = {tp: at for session in state.sessions.values() for tp, at in session.partitions.items()}
    moved = any(
        tp in fetched and fetched[tp][0] != position.offset for tp, position in state.assigned.items()
    )
    if not moved or state.metrics.last_poll_ms == state.now:
        _fetch(state, out)


def _commit_in_heartbeat_thread(state: JavaState, out: Any) -> None:
    _run_heartbeats(state, out)
    _auto_commit(state, out)


def _commit_twice_a_second(state: JavaState, out: Any) -> None:
    _auto_commit(state, out)
    state.auto_commit_at = min(state.auto_commit_at, state.now + 500)


# ---- rebalances


def _return_another_broker(answer: Any) -> Any:
    coordinator = _parse_coordinator(answer)
    return coordinator._replace(host="broker3" if coordinator.host == "broker2" else "broker2")


def _ignore_growth(state: JavaState) -> bool:
    state.assignment_snapshot = None
    return _needs_join(state)


def _revoke_everything(state: JavaState, out: Any) -> None:
    consumer_coordinator.invoke_listener(
        state, "revoked", tuple(sorted(state.assigned)), Continuation.JOIN_PREPARE, out
    )


def _revoke_nothing(state: JavaState, out: Any) -> None:
    consumer_coordinator.finish_join_prepare(state)


def _remove_before_revoked(
    state: JavaState, kind: str, partitions: Any, then: Continuation, out: Any
) -> None:
    if kind == "revoked":
        state.assigned = {}
    _invoke_listener(state, kind, partitions, then, out)


def _skip_empty_assigned(state: JavaState, kind: str, partitions: Any, then: Continuation, out: Any) -> None:
    if kind == "assigned" and not partitions:
        kafka_consumer._finish_join_complete(state, (), out)
    else:
        _invoke_listener(state, kind, partitions, then, out)


def _keep_last_exception(state: JavaState, error: Any, out: Any) -> None:
    state.callback_exception = None if error is not None else state.callback_exception
    _on_callback_returned(state, error, out)


def _join_with_the_default_timeout(state: JavaState, out: Any) -> None:
    state.max_poll_ms = 300_000
    _send_join_group(state, out)


# ---- onJoinComplete


def _keep_group_metadata(state: JavaState, out: Any) -> None:
    before = state.group_metadata
    _on_join_complete(state, out)
    state.group_metadata = before


def _keep_snapshot(state: JavaState, out: Any) -> None:
    _on_join_complete(state, out)
    state.assignment_snapshot = state.metadata_snapshot


def _decode_truncated_as_empty(state: JavaState, out: Any) -> None:
    if state.join_result is not None and len(state.join_result) < 2:
        state.join_result = Assignment(partitions=()).encode()
    _on_join_complete(state, out)


def _complete_as_cooperative(state: JavaState, out: Any) -> None:
    before, state.cooperative = state.cooperative, True
    _on_join_complete(state, out)
    state.cooperative = before


def _keep_joined_topics(state: JavaState, out: Any) -> None:
    before = state.joined_topics
    _on_join_complete(state, out)
    state.joined_topics = before


def _add_all_partitions(state: JavaState, out: Any) -> None:
    state.added_partitions = state.new_assignment
    _assign(state, out)


def _forget_positions(state: JavaState, out: Any) -> None:
    state.assigned = {}
    _assign(state, out)


def _drop_exception(state: JavaState, out: Any) -> None:
    _assign(state, out)
    state.callback_exception = None


def _keep_auto_commit_timer(state: JavaState, out: Any) -> None:
    before = state.auto_commit_at
    _assign(state, out)
    state.auto_commit_at = before


def _skip_rejoin(state: JavaState, continuation: Any, out: Any) -> None:
    consumer_coordinator.assign_from_subscribed(state, out)


COMMITS_OFTEN = Mutant(
    "commits twice a second", offset_commits, "maybe_auto_commit_async", _commit_twice_a_second
)
ALL_REVOKED = Mutant(
    "a cooperative member revokes everything", consumer_coordinator, "_revoke_before_join", _revoke_everything
)

MUTANTS: Table = {
    "S2-1": Mutant("group_id is ignored", options, "_check_options", _drop_group_id),
    "S2-2": Mutant("enable_auto_commit=False is ignored", options, "_check_options", _drop_auto_commit),
    "S2-3": Mutant("every consumer has a group", options, "_check_options", _add_group_id),
    "S2-4": Mutant("every consumer has a group", options, "_check_options", _add_group_id),
    "S2-5": Mutant(
        "every consumer commits automatically", options, "_check_options", _add_group_id_and_auto_commit
    ),
    "S2-6": Mutant(
        "a negative interval is accepted",
        options.CONSUMER,
        "auto_commit_interval_ms",
        options.CONSUMER["auto_commit_interval_ms"]._replace(check=whole_number_from(-1)),
    ),
    "S2-7": Mutant("poll may be called by any thread", kafka_consumer, "poll", _poll_in_any_thread),
    "S2-8": Mutant("poll works without a subscription", kafka_consumer, "poll", _poll_without_subscription),
    "S2-9": Mutant("wakeup does nothing", kafka_consumer, "wakeup", nothing),
    "S2-10": Mutant("poll has no timeout", kafka_consumer, "poll", _poll_without_timeout),
    "S2-11": Mutant("poll(long) ends at its timeout", kafka_consumer, "poll", _poll_with_timeout),
    "S2-12": Mutant("fetches are sent by the next poll", fetcher, "send_fetches", _fetch_in_next_poll),
    "S2-13": Mutant(
        "interceptors are not called", plugins, "on_consume", lambda interceptors, records, out: records
    ),
    "S2-14": Mutant("the loop of poll runs once", kafka_consumer, "poll", _poll_in_one_turn),
    "S2-15": Mutant("the end of poll is not recorded", KafkaConsumerMetrics, "record_poll_end", nothing),
    "S2-16": Mutant("the heartbeat thread commits", heartbeat_thread, "run", _commit_in_heartbeat_thread),
    "S2-17": COMMITS_OFTEN,
    "S2-18": Mutant(
        "a failed commit is retried after a whole interval", offset_commits, "RETRY_BACKOFF_MS", 5_000
    ),
    "S2-19": COMMITS_OFTEN,
    "S2-20": Mutant(
        "consumers register in another path", zookeeper, "ids_path", lambda group: f"/groups/{group}"
    ),
    "S2-21": Mutant("consumers never release partitions", zookeeper, "_release_partitions", nothing),
    "S2-22": Mutant(
        "another broker is the coordinator",
        coordinator_lookup,
        "parse_find_coordinator",
        _return_another_broker,
    ),
    "S2-23": Mutant(
        "new partitions are not detected", kafka_consumer, "rejoin_needed_or_pending", _ignore_growth
    ),
    "S2-24": Mutant(
        "all members have one rebalance timeout",
        abstract_coordinator,
        "send_join_group",
        _join_with_the_default_timeout,
    ),
    "S2-25": Mutant(
        "no commit before a join", consumer_coordinator, "_commit_before_join", lambda state, out: True
    ),
    "S2-26": Mutant("partitions are never lost", consumer_coordinator, "is_lost", lambda state: False),
    "S2-27": Mutant(
        "partitions are removed before onPartitionsRevoked",
        consumer_coordinator,
        "invoke_listener",
        _remove_before_revoked,
    ),
    "S2-28": Mutant(
        "nothing is revoked before a join",
        consumer_coordinator,
        "_revoke_before_join",
        _revoke_nothing,
    ),
    "S2-29": Mutant(
        "the former leader stays the leader", consumer_coordinator, "finish_join_prepare", nothing
    ),
    "S2-30": Mutant(
        "errors of callbacks are not wrapped", kafka_consumer, "wrap_callback_error", lambda cause: cause
    ),
    "S2-31": Mutant(
        "every member watches the metadata", consumer_coordinator, "on_join_complete", _keep_snapshot
    ),
    "S2-32": Mutant(
        "every assignor is known", abstract_coordinator, "lookup_assignor", lambda state: state.assignors[0]
    ),
    "S2-33": Mutant(
        "groupMetadata is not updated", consumer_coordinator, "on_join_complete", _keep_group_metadata
    ),
    "S2-34": Mutant(
        "a truncated assignment counts as empty",
        consumer_coordinator,
        "on_join_complete",
        _decode_truncated_as_empty,
    ),
    "S2-35": Mutant(
        "any assignment matches", consumer_coordinator, "_matches_subscription", lambda state, topic: True
    ),
    "S2-36": Mutant(
        "every partition counts as new", consumer_coordinator, "assign_from_subscribed", _add_all_partitions
    ),
    "S2-37": Mutant(
        "no rejoin after revoked",
        kafka_consumer.CONTINUATIONS,
        Continuation.JOIN_COMPLETE_REVOKED,
        _skip_rejoin,
    ),
    "S2-38": ALL_REVOKED,
    "S2-39": Mutant(
        "an eager member compares assignments",
        consumer_coordinator,
        "on_join_complete",
        _complete_as_cooperative,
    ),
    "S2-40": Mutant(
        "the subscription is not extended", consumer_coordinator, "on_join_complete", _keep_joined_topics
    ),
    "S2-41": Mutant(
        "an exception of onAssignment is dropped",
        consumer_coordinator,
        "assign_from_subscribed",
        _drop_exception,
    ),
    "S2-42": Mutant(
        "the auto-commit timer is not restarted",
        consumer_coordinator,
        "assign_from_subscribed",
        _keep_auto_commit_timer,
    ),
    "S2-43": Mutant(
        "every partition loses its position",
        consumer_coordinator,
        "assign_from_subscribed",
        _forget_positions,
    ),
    "S2-44": Mutant(
        "an empty assignment calls no callback", consumer_coordinator, "invoke_listener", _skip_empty_assigned
    ),
    "S2-45": Mutant(
        "the last exception is raised, not the first",
        kafka_consumer,
        "on_callback_returned",
        _keep_last_exception,
    ),
    "S2-46": ALL_REVOKED,
    "S2-47": COMMITS_OFTEN,
}
