"""Metadata: what is asked for and what an answer sets off (rdkafka_metadata.c, rd_kafka_cgrp_metadata_*).

* Any member watches: a topic of the subscription that appears, goes or has other partitions makes it join
  again, a follower as well as the leader.
* Every answer lets a join that waits for its interval go at once.
* topic.metadata.refresh.interval.ms counts from the start; without any topic there is nothing to refresh.
"""

from __future__ import annotations

from ...messages.metadata import MetadataRequest, MetadataResponse
from ...patterns import compiled
from ..common import metadata_request
from ..contract import Address
from . import toppar
from .cgrp_rebalance import metadata_changed
from .constants import err2name
from .request import COORDINATOR, any_usable_broker, retry_request, send_request
from .state import ACTIVE, CgrpJoinState, ErrorOp, LibrdkafkaState, Out, RequestBuf

FOR_JOIN, FOR_PLAN, FOR_WATCH, FOR_BROKERS = "join", "plan", "watch", "brokers"


def refresh(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_metadata_refresh_cb."""
    state.metadata_at = state.now + state.metadata_ms
    topics = topics_of_interest(state)
    if not state.bootstrap or (topics is not None and not topics):
        return
    send_request(state, any_usable_broker(state), metadata_request(topics), out, FOR_WATCH)


def topics_of_interest(state: LibrdkafkaState) -> list[str] | None:
    """The local topics and those subscribed to; all of them (None) for a pattern."""
    if state.wildcard:
        return None
    return sorted(state.local_topics.union(state.subscription or ()))


def refresh_for_join(state: LibrdkafkaState, out: Out) -> bool:
    """rd_kafka_cgrp_metadata_refresh: ask when a topic was never answered for; True while waiting."""
    if state.wildcard:
        asked = None
        known = state.full_metadata
    else:
        asked = list(state.subscription or ())
        known = all(one in state.cluster.topics or one in state.cluster.errors for one in asked)
    if known:
        return False
    send_request(state, any_usable_broker(state), metadata_request(asked), out, FOR_JOIN)
    return True


def request_assignor_metadata(state: LibrdkafkaState, topics: list[str], to: Address, out: Out) -> None:
    """The leader's question, to the coordinator: the topics of all members."""
    send_request(state, to, metadata_request(topics), out, FOR_PLAN)


def on_metadata_response(
    state: LibrdkafkaState, entry: RequestBuf, response: MetadataResponse, out: Out
) -> None:
    """rd_kafka_parse_Metadata, but for the leader's part."""
    request = entry.send.request
    assert isinstance(request, MetadataRequest)
    state.cluster.update(response, whole=request.topics is None)
    state.full_metadata = state.full_metadata or request.topics is None
    state.join_interval.reset()
    validate_after_reconnect(state, out)
    if entry.context in (FOR_JOIN, FOR_WATCH):
        update_check(state, True, out)


def validate_after_reconnect(state: LibrdkafkaState, out: Out) -> None:
    """A broker whose connection broke is asked whether it still has what was read."""
    if not state.broken_brokers:
        return
    state.broken_brokers.clear()
    for one in state.partitions.values():
        if one.started and one.fetch_state is ACTIVE:
            toppar.validate_position(state, one, out)


def on_metadata_failure(state: LibrdkafkaState, entry: RequestBuf) -> None:
    """Nobody answered: once more, as often as it takes where a join waits for it."""
    to = any_usable_broker(state) if entry.send.to.lane != COORDINATOR else entry.send.to
    entry.send = type(entry.send)(to, entry.send.request, entry.send.version, entry.send.timeout_ms)
    retry_request(state, entry, 2**31 if entry.context in (FOR_JOIN, FOR_PLAN) else 0)


def update_check(state: LibrdkafkaState, do_join: bool, out: Out) -> None:
    """rd_kafka_cgrp_metadata_update_check."""
    if not state.subscription:
        return
    found, missing = match_subscription(state)
    propagate_topic_errors(state, missing)
    changed = found != state.subscribed_topics
    state.subscribed_topics = found
    if do_join and (changed or state.state is CgrpJoinState.WAIT_METADATA):
        metadata_changed(state, out)


def match_subscription(state: LibrdkafkaState) -> tuple[dict[str, int], dict[str, int]]:
    """The topics of the subscription that exist, with their partitions; and the errors of the others."""
    found: dict[str, int] = {}
    missing: dict[str, int] = {}
    for one in state.subscription or ():
        if one.startswith("^"):
            hits = [topic for topic in state.cluster.topics if compiled(one).search(topic)]
            found.update({topic: len(state.cluster.topics[topic]) for topic in hits})
            if not hits:
                missing[one] = 3
        elif state.cluster.topics.get(one):
            found[one] = len(state.cluster.topics[one])
        else:
            missing[one] = state.cluster.errors.get(one, 3)
    return dict(sorted(found.items())), missing


def propagate_topic_errors(state: LibrdkafkaState, missing: dict[str, int]) -> None:
    """rd_kafka_propagate_consumer_topic_errors: each error of a topic is told once."""
    for topic, code in missing.items():
        if state.errored_topics.get(topic) != code:
            name = err2name(code)
            state.queue.append(ErrorOp(name, f"Subscribed topic not available: {topic}: Broker: {name}"))
    state.errored_topics = missing
