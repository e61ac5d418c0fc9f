"""Document 002: a consumer's options, Java's poll and rebalances, and the groups of the ZooKeeper days."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from consumer import options
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
from kproto.models.java.kafka_consumer_metrics import PollTimes
from kproto.models.java.state import Block, State, Then
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_known = options._known
_poll, _complete, _adopt, _told, _tell = (
    kafka_consumer.poll,
    consumer_coordinator.complete,
    consumer_coordinator.adopt,
    kafka_consumer.told,
    consumer_coordinator.tell,
)
_needs_join, _by_timer = kafka_consumer.needs_join, offset_commits.by_timer
_fetch, _beat, _found = fetcher.serve, heartbeat_thread.serve, coordinator_lookup.found_coordinator

# ---- options


def _without_the_group(*what: Any) -> Any:
    return {name: value for name, value in _known(*what).items() if name != "group_id"}


def _without_what_was_said(*what: Any) -> Any:
    values = _known(*what)
    values.pop("enable_auto_commit", None)
    return values


def _always_in_a_group(*what: Any) -> Any:
    return {"group_id": "everybody", **_known(*what)}


def _always_in_a_group_and_committing(*what: Any) -> Any:
    return {**_always_in_a_group(*what), "enable_auto_commit": True}


# ---- poll


def _for_any_thread(state: State, event: c.PollCalled, out: Any) -> None:
    state.block = Block.nothing
    _poll(state, event, out)


def _of_nothing(state: State, event: c.PollCalled, out: Any) -> None:
    state.automatic = True
    _poll(state, event, out)


def _without_an_end(state: State, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=True), out)


def _in_its_time(state: State, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, patient=False), out)


def _once(state: State, event: c.PollCalled, out: Any) -> None:
    _poll(state, structs.replace(event, timeout_ms=min(event.timeout_ms, 100)), out)


def _fetched_by_the_next_poll(state: State, out: Any) -> None:
    asked = {tp: at for session in state.sessions.values() for tp, at in session.partitions.items()}
    moved = any(tp in asked and asked[tp][0] != one.offset for tp, one in state.assigned.items())
    if not moved or state.polls.last == state.now:
        _fetch(state, out)


def _by_a_thread(state: State, out: Any) -> None:
    _beat(state, out)
    _by_timer(state, out)


def _twice_a_second(state: State, out: Any) -> None:
    _by_timer(state, out)
    state.commit_at = min(state.commit_at, state.now + 500)


# ---- rebalances


def _somewhere_else(answer: Any) -> Any:
    found = _found(answer)
    return found._replace(host="broker3" if found.host == "broker2" else "broker2")


def _growth_is_not_seen(state: State) -> bool:
    state.planned = None
    return _needs_join(state)


def _everything_is_given_back(state: State, out: Any) -> None:
    consumer_coordinator.tell(state, "revoked", tuple(sorted(state.assigned)), Then.joined_prepare, out)


def _nothing_is_given_back(state: State, out: Any) -> None:
    consumer_coordinator.prepared(state)


def _gone_before_it_is_told(state: State, kind: str, partitions: Any, then: Then, out: Any) -> None:
    if kind == "revoked":
        state.assigned = {}
    _tell(state, kind, partitions, then, out)


def _nothing_is_not_told(state: State, kind: str, partitions: Any, then: Then, out: Any) -> None:
    if kind == "assigned" and not partitions:
        kafka_consumer._told_assigned(state, (), out)
    else:
        _tell(state, kind, partitions, then, out)


def _the_last_is_thrown(state: State, error: Any, out: Any) -> None:
    state.raised = None if error is not None else state.raised
    _told(state, error, out)


# ---- onJoinComplete


def _as_whom_it_was(state: State, out: Any) -> None:
    before = state.group_metadata
    _complete(state, out)
    state.group_metadata = before


def _all_watch(state: State, out: Any) -> None:
    _complete(state, out)
    state.planned = state.snapshot


def _too_short_is_empty(state: State, out: Any) -> None:
    if state.join_done is not None and len(state.join_done) < 2:
        state.join_done = Assignment(partitions=()).encode()
    _complete(state, out)


def _eager_compares_too(state: State, out: Any) -> None:
    before, state.cooperative = state.cooperative, True
    _complete(state, out)
    state.cooperative = before


def _not_extended(state: State, out: Any) -> None:
    before = state.joined_topics
    _complete(state, out)
    state.joined_topics = before


def _all_is_new(state: State, out: Any) -> None:
    state.added = state.adopting
    _adopt(state, out)


def _all_begins_anew(state: State, out: Any) -> None:
    state.assigned = {}
    _adopt(state, out)


def _what_it_raises_is_dropped(state: State, out: Any) -> None:
    _adopt(state, out)
    state.raised = None


def _the_timer_goes_on(state: State, out: Any) -> None:
    before = state.commit_at
    _adopt(state, out)
    state.commit_at = before


def _no_rejoin(state: State, going: Any, out: Any) -> None:
    consumer_coordinator.adopt(state, out)


COMMITS_OFTEN = Mutant("commits twice a second", offset_commits, "by_timer", _twice_a_second)
ALL_GIVEN_BACK = Mutant("cooperative as eager", consumer_coordinator, "_let_go", _everything_is_given_back)

MUTANTS: Table = {
    "S2-1": Mutant("a group that isn't seen", options, "_known", _without_the_group),
    "S2-2": Mutant("a false that isn't heard", options, "_known", _without_what_was_said),
    "S2-3": Mutant("a group for all", options, "_known", _always_in_a_group),
    "S2-4": Mutant("a group for all", options, "_known", _always_in_a_group),
    "S2-5": Mutant("commits for all", options, "_known", _always_in_a_group_and_committing),
    "S2-6": Mutant(
        "an interval below 0", options._CONSUMER_CHECKS, "auto_commit_interval_ms", options._number(-1)
    ),
    "S2-7": Mutant("a poll for any thread", kafka_consumer, "poll", _for_any_thread),
    "S2-8": Mutant("a poll of nothing", kafka_consumer, "poll", _of_nothing),
    "S2-9": Mutant("a wakeup that nobody hears", kafka_consumer, "wakeup", nothing),
    "S2-10": Mutant("a poll without an end", kafka_consumer, "poll", _without_an_end),
    "S2-11": Mutant("a poll(long) that ends in its time", kafka_consumer, "poll", _in_its_time),
    "S2-12": Mutant("a fetch of the next poll", fetcher, "serve", _fetched_by_the_next_poll),
    "S2-13": Mutant("no interceptors", plugins, "consumed", lambda interceptors, records, out: records),
    "S2-14": Mutant("a loop that goes round once", kafka_consumer, "poll", _once),
    "S2-15": Mutant("an end that isn't recorded", PollTimes, "ended", nothing),
    "S2-16": Mutant("commits of a thread's", heartbeat_thread, "serve", _by_a_thread),
    "S2-17": COMMITS_OFTEN,
    "S2-18": Mutant("a whole interval after any error", offset_commits, "RETRY_BACKOFF_MS", 5_000),
    "S2-19": COMMITS_OFTEN,
    "S2-20": Mutant("consumers elsewhere", zookeeper, "ids_path", lambda group: f"/groups/{group}"),
    "S2-21": Mutant("consumers that never let go", zookeeper, "_release", nothing),
    "S2-22": Mutant("a coordinator elsewhere", coordinator_lookup, "found_coordinator", _somewhere_else),
    "S2-23": Mutant("growth that isn't seen", kafka_consumer, "needs_join", _growth_is_not_seen),
    "S2-24": Mutant("one rebalance timeout for all", State, "max_poll_ms", property(lambda state: 300_000)),
    "S2-25": Mutant(
        "no commit before a join", consumer_coordinator, "_committed_before_join", lambda state, out: True
    ),
    "S2-26": Mutant("nothing is ever lost", consumer_coordinator, "is_lost", lambda state: False),
    "S2-27": Mutant("gone before it is told", consumer_coordinator, "tell", _gone_before_it_is_told),
    "S2-28": Mutant(
        "nothing given back before a join", consumer_coordinator, "_let_go", _nothing_is_given_back
    ),
    "S2-29": Mutant("who led leads on", consumer_coordinator, "prepared", nothing),
    "S2-30": Mutant("the cause itself", kafka_consumer, "wrapped", lambda cause: cause),
    "S2-31": Mutant("everybody watches", consumer_coordinator, "complete", _all_watch),
    "S2-32": Mutant(
        "any assignor is ours", abstract_coordinator, "chosen_assignor", lambda state: state.assignors[0]
    ),
    "S2-33": Mutant("groupMetadata as it was", consumer_coordinator, "complete", _as_whom_it_was),
    "S2-34": Mutant("too short is empty", consumer_coordinator, "complete", _too_short_is_empty),
    "S2-35": Mutant("any assignment matches", consumer_coordinator, "_matches", lambda state, topic: True),
    "S2-36": Mutant("all is new", consumer_coordinator, "adopt", _all_is_new),
    "S2-37": Mutant("no rejoin after revoked", kafka_consumer.THENS, Then.complete_revoked, _no_rejoin),
    "S2-38": ALL_GIVEN_BACK,
    "S2-39": Mutant("eager compares, too", consumer_coordinator, "complete", _eager_compares_too),
    "S2-40": Mutant("a subscription that isn't extended", consumer_coordinator, "complete", _not_extended),
    "S2-41": Mutant(
        "what onAssignment raises is dropped", consumer_coordinator, "adopt", _what_it_raises_is_dropped
    ),
    "S2-42": Mutant("a timer that goes on", consumer_coordinator, "adopt", _the_timer_goes_on),
    "S2-43": Mutant("all begins anew", consumer_coordinator, "adopt", _all_begins_anew),
    "S2-44": Mutant("nothing isn't told", consumer_coordinator, "tell", _nothing_is_not_told),
    "S2-45": Mutant("the last exception is thrown", kafka_consumer, "told", _the_last_is_thrown),
    "S2-46": ALL_GIVEN_BACK,
    "S2-47": COMMITS_OFTEN,
}
