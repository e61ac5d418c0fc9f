"""The topics whose metadata the client requests, and the effects of a Metadata response.

Follows rdkafka_metadata.c, rd_kafka_cgrp_metadata_*.

* M93: Every member, leader or follower, rejoins if a subscribed topic is created or deleted, or if its
  partition count changes.

* If a join waits for the minimum interval between joins, any Metadata response ends the wait.

* Metadata is refreshed every topic.metadata.refresh.interval.ms from the start of the client on, no matter
  when a response arrives. If the client uses no topics, the model refreshes nothing, whereas librdkafka
  refreshes its list of brokers.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.metadata import MetadataRequest, MetadataResponse
from ...patterns import compiled
from ..common import metadata_request
from ..contract import Address
from . import toppar
from .cgrp_rebalance import metadata_changed
from .constants import err2name
from .err_texts import err2str
from .request import COORDINATOR, any_usable_broker, retry_request, send_request
from .state import ACTIVE, CgrpJoinState, ErrorOp, LibrdkafkaState, Out, RequestBuf

UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
# The purposes of a Metadata request, which are the `context` of its `RequestBuf`: a join, the leader's
# assignment, changes of topics and leaders, or the list of brokers.
FOR_JOIN, FOR_PLAN, FOR_WATCH, FOR_BROKERS = "join", "plan", "watch", "brokers"
# A limit of retries that is never reached.
_UNLIMITED = 2**31


def refresh(state: LibrdkafkaState, out: Out) -> None:
    """Request metadata at the refresh interval (rd_kafka_metadata_refresh_cb)."""
    state.metadata_at = state.now + state.metadata_ms
    topics = topics_of_interest(state)
    if not state.bootstrap or (topics is not None and not topics):
        return
    send_request(state, any_usable_broker(state), metadata_request(topics), out, FOR_WATCH)


def topics_of_interest(state: LibrdkafkaState) -> list[str] | None:
    """Return the topics that are in use or subscribed to.

    The result is None, which means all topics, if the subscription has a pattern.
    """
    if state.wildcard:
        return None
    return sorted(state.local_topics.union(state.subscription or ()))


def refresh_for_join(state: LibrdkafkaState, out: Out) -> bool:
    """Request the metadata that a join needs, unless it is known. Return whether the join has to wait.

    rd_kafka_cgrp_metadata_refresh.
    """
    if state.wildcard:
        topics = None
        is_known = state.full_metadata
    else:
        topics = list(state.subscription or ())
        is_known = all(topic in state.cluster.topics or topic in state.cluster.errors for topic in topics)
    if is_known:
        return False
    send_request(state, any_usable_broker(state), metadata_request(topics), out, FOR_JOIN)
    return True


def request_assignor_metadata(state: LibrdkafkaState, topics: list[str], to: Address, out: Out) -> None:
    """Request the metadata of all members' topics from the coordinator, for the leader's assignment."""
    send_request(state, to, metadata_request(topics), out, FOR_PLAN)


def on_metadata_response(
    state: LibrdkafkaState, entry: RequestBuf, response: MetadataResponse, out: Out
) -> None:
    """Apply a Metadata response, and rejoin if the subscribed topics have changed (rd_kafka_parse_Metadata).

    The next join does not wait for the join interval. If a connection was lost, positions are validated.
    """
    request = entry.send.request
    assert isinstance(request, MetadataRequest)
    state.cluster.update(response, whole=request.topics is None)
    state.full_metadata = state.full_metadata or request.topics is None
    state.join_interval.reset()
    validate_after_reconnect(state, out)
    if entry.context in (FOR_JOIN, FOR_WATCH):
        update_check(state, do_join=True, out=out)


def validate_after_reconnect(state: LibrdkafkaState, out: Out) -> None:
    """If the connection to any broker was lost, validate the positions of all active partitions."""
    if not state.broken_brokers:
        return
    state.broken_brokers.clear()
    for partition in state.partitions.values():
        if partition.started and partition.state is ACTIVE:
            toppar.validate_position(state, partition, out)


def on_metadata_failure(state: LibrdkafkaState, entry: RequestBuf) -> None:
    """Retry a failed Metadata request, but only if a join waits for the metadata. Retries have no limit."""
    to = any_usable_broker(state) if entry.send.to.lane != COORDINATOR else entry.send.to
    entry.send = type(entry.send)(to, entry.send.request, entry.send.version, entry.send.timeout_ms)
    join_waits = entry.context in (FOR_JOIN, FOR_PLAN)
    retry_request(state, entry, _UNLIMITED if join_waits else 0)


def update_check(state: LibrdkafkaState, do_join: bool, out: Out) -> None:
    """Update the available subscribed topics, and rejoin if they or their partition counts have changed.

    A join that waits for metadata continues even if nothing has changed. If `do_join` is false, the member
    neither rejoins nor continues a join. The function follows rd_kafka_cgrp_metadata_update_check.
    """
    if not state.subscription:
        return
    available, missing = match_subscription(state)
    propagate_topic_errors(state, missing)
    changed = available != state.subscribed_topics
    state.subscribed_topics = available
    if do_join and (changed or state.state is CgrpJoinState.WAIT_METADATA):
        metadata_changed(state, out)


def match_subscription(state: LibrdkafkaState) -> tuple[dict[str, int], dict[str, int]]:
    """Return the subscribed topics that exist, and the errors of the subscribed topics that do not exist.

    The first result maps the existing topics to their partition counts.
    """
    available: dict[str, int] = {}
    missing: dict[str, int] = {}
    for name in state.subscription or ():
        if name.startswith("^"):
            matches = [topic for topic in state.cluster.topics if compiled(name).search(topic)]
            available.update({topic: len(state.cluster.topics[topic]) for topic in matches})
            if not matches:
                missing[name] = UNKNOWN_TOPIC
        elif state.cluster.topics.get(name):
            available[name] = len(state.cluster.topics[name])
        else:
            missing[name] = state.cluster.errors.get(name, UNKNOWN_TOPIC)
    return dict(sorted(available.items())), missing


def propagate_topic_errors(state: LibrdkafkaState, missing: dict[str, int]) -> None:
    """Report each error of a subscribed topic once (rd_kafka_propagate_consumer_topic_errors)."""
    for topic, code in missing.items():
        if state.errored_topics.get(topic) != code:
            text = f"Subscribed topic not available: {topic}: {err2str(code)}"
            state.queue.append(ErrorOp(err2name(code), text))
    state.errored_topics = missing
