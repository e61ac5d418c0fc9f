"""Mutants of document 002: a consumer's options, Java's poll and rebalances, and the groups of Kafka 0.8."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from consumer import options
from consumer.option_checks import whole
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

_checked = options._checked
_poll, _complete, _adopt, _told, _tell = (
    kafka_consumer.poll,
    consumer_coordinator.on_join_complete,
    consumer_coordinator.assign_from_subscribed,
    kafka_consumer.on_callback_returned,
    consumer_coordinator.invoke_listener,
)
_needs_join, _by_timer = kafka_consumer.rejoin_needed_or_pending, offset_commits.maybe_auto_commit_async
_fetch, _beat, _found = fetcher.send_fetches, heartbeat_thread.run, coordinator_lookup.parse_find_coordinator

# ---- options


def _without_the_group(*arguments: Any) -> Any:
    return {name: value for name, value in _checked(*arguments).items() if name != "group_id"}


def _without_what_was_said(*arguments: Any) -> Any:
    values = _checked(*arguments)
    values.pop("enable_auto_commit", None)
    return values


def _always_in_a_group(*arguments: Any) -> Any:
    return {"group_id": "everybody", **_checked(*arguments)}


def _always_in_a_group_and_committing(*arguments: Any) -> Any:
    return {**_always_in_a_group(*arguments), "enable_auto_commit": True}


# ---- poll


def _for_any_thread(state: JavaState, event: c.PollCalled, out: Any) -> None:
    state.thread.state = BlockedOn.NOTHING
    _poll(state, event, out)


def _of_nothing(state: JavaState, event: c.PollCalled, out: Any) -> None:
    state.auto_assigned = True
    _poll(state, event, out)


def _without_an_end(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=True), out)


def _in_its_time(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=False), out)


def _once(state: JavaState, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, timeout_ms=min(event.timeout_ms, 100)), out)


def _fetched_by_the_next_poll(state: JavaState, out: Any) -> None:
    fetched = {tp: at for session in state.sessions.values() for tp, at in session.partitions.items()}
    moved = any(
        tp in fetched and fetched[tp][0] != position.offset for tp, position in state.assigned.items()
    )
    if not moved or state.metrics.last == state.now:
        _fetch(state, out)


def _by_a_thread(state: JavaState, out: Any) -> None:
    _beat(state, out)
    _by_timer(state, out)


def _twice_a_second(state: JavaState, out: Any) -> None:
    _by_timer(state, out)
    state.auto_commit_at = min(state.auto_commit_at, state.now + 500)


# ---- rebalances


def _somewhere_else(answer: Any) -> Any:
    coordinator = _found(answer)
    return coordinator._replace(host="broker3" if coordinator.host == "broker2" else "broker2")


def _growth_is_not_seen(state: JavaState) -> bool:
    state.assignment_snapshot = None
    return _needs_join(state)


def _everything_is_given_back(state: JavaState, out: Any) -> None:
    consumer_coordinator.invoke_listener(
        state, "revoked", tuple(sorted(state.assigned)), Continuation.JOIN_PREPARE, out
    )


def _nothing_is_given_back(state: JavaState, out: Any) -> None:
    consumer_coordinator.finish_join_prepare(state)


def _gone_before_it_is_told(
    state: JavaState, kind: str, partitions: Any, then: Continuation, out: Any
) -> None:
    if kind == "revoked":
        state.assigned = {}
    _tell(state, kind, partitions, then, out)


def _nothing_is_not_told(state: JavaState, kind: str, partitions: Any, then: Continuation, out: Any) -> None:
    if kind == "assigned" and not partitions:
        kafka_consumer._finish_join_complete(state, (), out)
    else:
        _tell(state, kind, partitions, then, out)


def _the_last_is_thrown(state: JavaState, error: Any, out: Any) -> None:
    state.callback_exception = None if error is not None else state.callback_exception
    _told(state, error, out)


# ---- onJoinComplete


def _as_whom_it_was(state: JavaState, out: Any) -> None:
    before = state.group_metadata
    _complete(state, out)
    state.group_metadata = before


def _all_watch(state: JavaState, out: Any) -> None:
    _complete(state, out)
    state.assignment_snapshot = state.metadata_snapshot


def _too_short_is_empty(state: JavaState, out: Any) -> None:
    if state.join_result is not None and len(state.join_result) < 2:
        state.join_result = Assignment(partitions=()).encode()
    _complete(state, out)


def _eager_compares_too(state: JavaState, out: Any) -> None:
    before, state.cooperative = state.cooperative, True
    _complete(state, out)
    state.cooperative = before


def _not_extended(state: JavaState, out: Any) -> None:
    before = state.joined_topics
    _complete(state, out)
    state.joined_topics = before


def _all_is_new(state: JavaState, out: Any) -> None:
    state.added_partitions = state.new_assignment
    _adopt(state, out)


def _all_begins_anew(state: JavaState, out: Any) -> None:
    state.assigned = {}
    _adopt(state, out)


def _what_it_raises_is_dropped(state: JavaState, out: Any) -> None:
    _adopt(state, out)
    state.callback_exception = None


def _the_timer_goes_on(state: JavaState, out: Any) -> None:
    before = state.auto_commit_at
    _adopt(state, out)
    state.auto_commit_at = before


def _no_rejoin(state: JavaState, going: Any, out: Any) -> None:
    consumer_coordinator.assign_from_subscribed(state, out)


COMMITS_OFTEN = Mutant("commits twice a second", offset_commits, "maybe_auto_commit_async", _twice_a_second)
ALL_GIVEN_BACK = Mutant(
    "cooperative as eager", consumer_coordinator, "_revoke_before_join", _everything_is_given_back
)

MUTANTS: Table = {
    "S2-1": Mutant("a group that isn't seen", options, "_checked", _without_the_group),
    "S2-2": Mutant("a false that isn't heard", options, "_checked", _without_what_was_said),
    "S2-3": Mutant("a group for all", options, "_checked", _always_in_a_group),
    "S2-4": Mutant("a group for all", options, "_checked", _always_in_a_group),
    "S2-5": Mutant("commits for all", options, "_checked", _always_in_a_group_and_committing),
    "S2-6": Mutant(
        "an interval below 0",
        options.CONSUMER,
        "auto_commit_interval_ms",
        options.CONSUMER["auto_commit_interval_ms"]._replace(check=whole(-1)),
    ),
    "S2-7": Mutant("a poll for any thread", kafka_consumer, "poll", _for_any_thread),
    "S2-8": Mutant("a poll of nothing", kafka_consumer, "poll", _of_nothing),
    "S2-9": Mutant("a wakeup that nobody hears", kafka_consumer, "wakeup", nothing),
    "S2-10": Mutant("a poll without an end", kafka_consumer, "poll", _without_an_end),
    "S2-11": Mutant("a poll(long) that ends in its time", kafka_consumer, "poll", _in_its_time),
    "S2-12": Mutant("a fetch of the next poll", fetcher, "send_fetches", _fetched_by_the_next_poll),
    "S2-13": Mutant("no interceptors", plugins, "on_consume", lambda interceptors, records, out: records),
    "S2-14": Mutant("a loop that goes round once", kafka_consumer, "poll", _once),
    "S2-15": Mutant("an end that isn't recorded", KafkaConsumerMetrics, "record_poll_end", nothing),
    "S2-16": Mutant("commits of a thread's", heartbeat_thread, "run", _by_a_thread),
    "S2-17": COMMITS_OFTEN,
    "S2-18": Mutant("a whole interval after any error", offset_commits, "RETRY_BACKOFF_MS", 5_000),
    "S2-19": COMMITS_OFTEN,
    "S2-20": Mutant("consumers elsewhere", zookeeper, "ids_path", lambda group: f"/groups/{group}"),
    "S2-21": Mutant("consumers that never let go", zookeeper, "_release", nothing),
    "S2-22": Mutant("a coordinator elsewhere", coordinator_lookup, "parse_find_coordinator", _somewhere_else),
    "S2-23": Mutant(
        "growth that isn't seen", kafka_consumer, "rejoin_needed_or_pending", _growth_is_not_seen
    ),
    "S2-24": Mutant(
        "one rebalance timeout for all", JavaState, "max_poll_ms", property(lambda state: 300_000)
    ),
    "S2-25": Mutant(
        "no commit before a join", consumer_coordinator, "_commit_before_join", lambda state, out: True
    ),
    "S2-26": Mutant("nothing is ever lost", consumer_coordinator, "is_lost", lambda state: False),
    "S2-27": Mutant(
        "gone before it is told", consumer_coordinator, "invoke_listener", _gone_before_it_is_told
    ),
    "S2-28": Mutant(
        "nothing given back before a join",
        consumer_coordinator,
        "_revoke_before_join",
        _nothing_is_given_back,
    ),
    "S2-29": Mutant("who led leads on", consumer_coordinator, "finish_join_prepare", nothing),
    "S2-30": Mutant("the cause itself", kafka_consumer, "wrap_callback_error", lambda cause: cause),
    "S2-31": Mutant("everybody watches", consumer_coordinator, "on_join_complete", _all_watch),
    "S2-32": Mutant(
        "any assignor is ours", abstract_coordinator, "lookup_assignor", lambda state: state.assignors[0]
    ),
    "S2-33": Mutant("groupMetadata as it was", consumer_coordinator, "on_join_complete", _as_whom_it_was),
    "S2-34": Mutant("too short is empty", consumer_coordinator, "on_join_complete", _too_short_is_empty),
    "S2-35": Mutant(
        "any assignment matches", consumer_coordinator, "_matches_subscription", lambda state, topic: True
    ),
    "S2-36": Mutant("all is new", consumer_coordinator, "assign_from_subscribed", _all_is_new),
    "S2-37": Mutant(
        "no rejoin after revoked",
        kafka_consumer.CONTINUATIONS,
        Continuation.JOIN_COMPLETE_REVOKED,
        _no_rejoin,
    ),
    "S2-38": ALL_GIVEN_BACK,
    "S2-39": Mutant("eager compares, too", consumer_coordinator, "on_join_complete", _eager_compares_too),
    "S2-40": Mutant(
        "a subscription that isn't extended", consumer_coordinator, "on_join_complete", _not_extended
    ),
    "S2-41": Mutant(
        "what onAssignment raises is dropped",
        consumer_coordinator,
        "assign_from_subscribed",
        _what_it_raises_is_dropped,
    ),
    "S2-42": Mutant(
        "a timer that goes on", consumer_coordinator, "assign_from_subscribed", _the_timer_goes_on
    ),
    "S2-43": Mutant("all begins anew", consumer_coordinator, "assign_from_subscribed", _all_begins_anew),
    "S2-44": Mutant("nothing isn't told", consumer_coordinator, "invoke_listener", _nothing_is_not_told),
    "S2-45": Mutant(
        "the last exception is thrown", kafka_consumer, "on_callback_returned", _the_last_is_thrown
    ),
    "S2-46": ALL_GIVEN_BACK,
    "S2-47": COMMITS_OFTEN,
}
