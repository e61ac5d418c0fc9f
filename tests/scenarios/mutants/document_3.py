"""Mutants (mistakes patched into models) for lesson 003: sarama, from its fetch loop to newSession."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from consumer.engine.producer import partitioner
from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import joins
from kproto.models import sarama
from kproto.models.sarama import (
    balance_strategy,
    broker_consumer,
    consume_partition,
    consumer_group_close,
    consumer_group_join,
    consumer_group_session,
    partition_consumer,
)
from kproto.models.sarama.application import Application
from kproto.models.sarama.consumer_group_session import GroupSession, Heartbeat
from kproto.models.sarama.errors import GoError
from kproto.models.sarama.offset_manager import MainLoop, OffsetManager, PartitionOffset
from kproto.models.sarama.partition_consumer import Feeder, PartitionConsumer
from kproto.models.sarama.versions import versions_of
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_request, _parse, _finish = (
    broker_consumer._build_request,
    partition_consumer.parse,
    consumer_group_join._finish,
)
_push, _mark, _run_callback, _feed = (
    Feeder.push,
    PartitionOffset.mark,
    Application.run_callback,
    PartitionConsumer.feed,
)
_init_offsets, _assignments = (
    OffsetManager.__init__,
    balance_strategy.assignments,
)
_init_join, _response_handlers = (
    consumer_group_join.Join.__init__,
    (consumer_group_join._on_join_response, consumer_group_join._on_sync_response),
)


_numbers = count()


def _next_hash(key: bytes) -> int:
    return next(_numbers)


def _assign_all_to_each(plan: Any, members: Any, counts: Any) -> None:
    for assignment in plan.values():
        assignment += [
            balance_strategy.TopicPartition(topic, index)
            for topic in counts
            for index in range(counts[topic])
        ]


def _assign_to_one_member(*arguments: Any) -> Any:
    return dict(list(_assignments(*arguments).items())[:1])


def _parse_backwards(child: Any, block: Any) -> Any:
    messages, trouble = _parse(child, block)
    return messages[::-1], trouble


def _mark_fetched(feeder: Any) -> bool:
    receiver = feeder.child.receiver
    receiver.session.offsets.partition_offsets[receiver.partition].mark(feeder.child.offset)
    return _push(feeder)


def _request_one_partition(consumer: Any) -> Any:
    request = _request(consumer)
    if request is not None:
        request.topics[0].partitions = request.topics[0].partitions[:1]
    return request


def _feed_first_block(child: Any, subscription: Any, block: Any) -> None:
    consumer = subscription.consumer
    if block.records and block.partition_index == 0:
        consumer.first = block
    _feed(child, subscription, getattr(consumer, "first", block) if block.records else block)


def _always_create_committer(self: Any, *arguments: Any) -> None:
    _init_offsets(self, *arguments)
    self.committer = self.committer or MainLoop(self)


def _ignore_retention(kafka_version: Any, release: str, offsets_retention: int) -> Any:
    return versions_of(kafka_version, release)


def _clear_dirty(self: Any, offset: int, metadata: str) -> None:
    self.dirty = False


def _return_immediately(self: Any, kind: str, partitions: Any, waiting: Any) -> None:
    _run_callback(self, kind, partitions, None)
    if waiting is not None:
        self.client.wake(waiting, "callback_returned")


def _join_with_invented_id(self: Any, group: Any, *arguments: Any) -> None:
    _init_join(self, group, *arguments)
    group.member_id = group.member_id or "an-invented-id"


def _fail_lookup(join: Any) -> None:
    _finish(join, consumer_group_join.errors.COORDINATOR_NOT_AVAILABLE)


def _send_empty_plan(join: Any, response: Any) -> None:
    consumer_group_join._send_sync(join, {})


def _retry_silently(join: Any, answer: Any) -> None:
    if answer.response is None:
        answer.broker.close()
        join.move(consumer_group_join.S.FINDING_COORDINATOR)
        consumer_group_join._join_sync(join)
    else:
        _response_handlers[join.state is consumer_group_join.S.SYNCING](join, answer)


def _fail_without_claims(join: Any, result: Any) -> None:
    empty = not isinstance(result, GoError) and not result.claims
    _finish(join, GoError("errors.errorString", "nothing to do") if empty else result)


def _reverse_claims(join: Any, result: Any) -> None:
    _finish(join, result if isinstance(result, GoError) else replace(result, claims=result.claims[::-1]))


ANSWERS: Any = consumer_group_join.Join.TABLE["response"]
ALL_TO_EACH = Mutant(
    "every member gets every partition", balance_strategy._STRATEGIES, "range", _assign_all_to_each
)
NEVER_CLEAN = Mutant("a commit leaves every offset dirty", PartitionOffset, "on_committed", nothing)
NO_MAX_PROCESSING_TIME = Mutant(
    "MaxProcessingTime has no effect", Feeder.TABLE["timer_elapsed"], partition_consumer.E.PUSHING, nothing
)
MARKS_LAST_OFFSET = Mutant(
    "a mark stores the last offset, not the next",
    PartitionOffset,
    "mark",
    lambda managed, at, *_: _mark(managed, at - 1),
)
NO_RETRY = Mutant("no error of a join is retried", consumer_group_join, "_RETRIED_AFTER_BACKOFF", set[int]())
KEEPS_MEMBER_ID = Mutant("a rejected member id is kept", consumer_group_join, "_RESETS_MEMBER_ID", set[int]())
ALWAYS_COMMITS = Mutant(
    "offsets are committed without AutoCommit.Enable", OffsetManager, "__init__", _always_create_committer
)
NO_WAITING = Mutant(
    "the session does not wait for Setup and Cleanup", Application, "run_callback", _return_immediately
)

MUTANTS: Table = {
    "S3-1": ALL_TO_EACH,
    "S3-2": Mutant("only one member is in the plan", balance_strategy, "assignments", _assign_to_one_member),
    "S3-3": Mutant("records are read backwards", partition_consumer, "parse", _parse_backwards),
    "S3-4": Mutant("fetched messages are marked", Feeder, "push", _mark_fetched),
    "S3-5": NEVER_CLEAN,
    "S3-6": ALL_TO_EACH,
    "S3-7": NO_WAITING,
    "S3-8": Mutant("the handler gets no claims", GroupSession, "run_callback", nothing),
    "S3-9": Mutant("a Fetch reads one partition", broker_consumer, "_build_request", _request_one_partition),
    "S3-10": NO_MAX_PROCESSING_TIME,
    "S3-11": Mutant("every feeder gets the first block", PartitionConsumer, "feed", _feed_first_block),
    "S3-12": NO_MAX_PROCESSING_TIME,
    "S3-13": Mutant("the oldest offset is the newest", consume_partition, "OLDEST", consume_partition.NEWEST),
    "S3-14": ALWAYS_COMMITS,
    "S3-15": NEVER_CLEAN,
    "S3-16": MARKS_LAST_OFFSET,
    "S3-17": Mutant("Offsets.Retention selects no version", sarama, "versions_of", _ignore_retention),
    "S3-18": Mutant("a commit marks every offset as clean", PartitionOffset, "on_committed", _clear_dirty),
    "S3-19a": Mutant("a failed lookup is not retried", consumer_group_join, "_back_off", _fail_lookup),
    "S3-19b": Mutant(
        "JoinGroup is retried without an error", ANSWERS, consumer_group_join.S.JOINING, _retry_silently
    ),
    "S3-19c": Mutant(
        "the member invents its id", consumer_group_join.Join, "__init__", _join_with_invented_id
    ),
    "S3-19d": KEEPS_MEMBER_ID,
    "S3-19e": NO_RETRY,
    "S3-19f": NO_RETRY,
    "S3-19g": Mutant(
        "a missing permission is retried",
        consumer_group_join,
        "_RETRIED_AFTER_BACKOFF",
        {*consumer_group_join._RETRIED_AFTER_BACKOFF, ErrorCode.GROUP_AUTHORIZATION_FAILED},
    ),
    "S3-19h": Mutant("the leader sends an empty plan", consumer_group_join, "_on_joined", _send_empty_plan),
    "S3-19i": Mutant(
        "SyncGroup is retried without an error", ANSWERS, consumer_group_join.S.SYNCING, _retry_silently
    ),
    "S3-19j": KEEPS_MEMBER_ID,
    "S3-19k": Mutant("a session needs claims", consumer_group_join, "_finish", _fail_without_claims),
    "S3-19l": Mutant("claims are not sorted", consumer_group_join, "_finish", _reverse_claims),
    "S3-19m": NO_WAITING,
    "S3-20": Mutant(
        "no heartbeats are sent", Heartbeat.TABLE["timer_elapsed"], consumer_group_session.H.WAITING, nothing
    ),
    "S3-21": ALWAYS_COMMITS,
    "S3-22": Mutant("Close without LeaveGroup", consumer_group_close, "leave", consumer_group_close.close),
    "S3-23": Mutant("a key does not determine the partition", partitioner, "murmur2", _next_hash),
    "S3-24": MARKS_LAST_OFFSET,
    "S3-25": Mutant("member ids lack the client id", joins, "_new_member_id", lambda call: call.random_id),
}
