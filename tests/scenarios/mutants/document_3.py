"""Mutants of document 003: sarama, from its fetch loop to newSession."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from consumer.engine.producer import partitioner
from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import joins
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
from kproto.models.sarama.offset_manager import Committer, OffsetManager, PartitionOffset
from kproto.models.sarama.partition_consumer import Feeder, PartitionConsumer
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_request, _parse, _finish = (
    broker_consumer._build_request,
    partition_consumer.parse,
    consumer_group_join._finish,
)
_push, _mark, _tell, _feed = (
    Feeder.push,
    PartitionOffset.mark,
    Application.run_callback,
    PartitionConsumer.feed,
)
_manage, _commit, _assignments = OffsetManager.__init__, OffsetManager.request, balance_strategy.assignments
_begin, _answered = (
    consumer_group_join.Join.__init__,
    (consumer_group_join._on_join_response, consumer_group_join._on_sync_response),
)


_numbers = count()


def _next_place(key: bytes) -> int:
    return next(_numbers)


def _everything_to_all(plan: Any, members: Any, counts: Any) -> None:
    for assignment in plan.values():
        assignment += [
            balance_strategy.TopicPartition(topic, index)
            for topic in counts
            for index in range(counts[topic])
        ]


def _for_one_member(*arguments: Any) -> Any:
    return dict(list(_assignments(*arguments).items())[:1])


def _backwards(child: Any, block: Any) -> Any:
    messages, trouble = _parse(child, block)
    return messages[::-1], trouble


def _marks_what_is_fetched(feeder: Any) -> bool:
    taker = feeder.child.receiver
    taker.session.offsets.partition_offsets[taker.partition].mark(feeder.child.offset)
    return _push(feeder)


def _one_partition(consumer: Any) -> Any:
    request = _request(consumer)
    if request is not None:
        request.topics[0].partitions = request.topics[0].partitions[:1]
    return request


def _what_came_first(child: Any, subscription: Any, block: Any) -> None:
    consumer = subscription.consumer
    if block.records and block.partition_index == 0:
        consumer.first = block
    _feed(child, subscription, getattr(consumer, "first", block) if block.records else block)


def _always_commits(self: Any, *arguments: Any) -> None:
    _manage(self, *arguments)
    self.committer = self.committer or Committer(self)


def _keeps_for_no_time(self: Any, targets: Any) -> Any:
    request = _commit(self, targets)
    if request is not None:
        request.retention_time_ms = max(request.retention_time_ms, 0)
    return request


def _cleans(self: Any, offset: int, metadata: str) -> None:
    self.dirty = False


def _returns_at_once(self: Any, kind: str, partitions: Any, waiting: Any) -> None:
    _tell(self, kind, partitions, None)
    if waiting is not None:
        self.client.wake(waiting, "callback_returned")


def _begins_with_an_id(self: Any, group: Any, *arguments: Any) -> None:
    _begin(self, group, *arguments)
    group.member_id = group.member_id or "a-name-of-its-own"


def _gives_up(join: Any) -> None:
    _finish(join, consumer_group_join.errors.COORDINATOR_NOT_AVAILABLE)


def _plans_nothing(join: Any, response: Any) -> None:
    consumer_group_join._send_sync(join, {})


def _asks_again(join: Any, answer: Any) -> None:
    if answer.response is None:
        answer.broker.close()
        join.move(consumer_group_join.S.FINDING_COORDINATOR)
        consumer_group_join._join_sync(join)
    else:
        _answered[join.state is consumer_group_join.S.SYNCING](join, answer)


def _needs_claims(join: Any, result: Any) -> None:
    empty = not isinstance(result, GoError) and not result.claims
    _finish(join, GoError("errors.errorString", "nothing to do") if empty else result)


def _unsorted(join: Any, result: Any) -> None:
    _finish(join, result if isinstance(result, GoError) else replace(result, claims=result.claims[::-1]))


ANSWERS: Any = consumer_group_join.Join.TABLE["response"]
FOR_ALL = Mutant("each partition for every member", balance_strategy._STRATEGIES, "range", _everything_to_all)
NEVER_CLEAN = Mutant("a commit that leaves everything dirty", PartitionOffset, "on_committed", nothing)
NO_LIMIT = Mutant(
    "no MaxProcessingTime", Feeder.TABLE["timer_elapsed"], partition_consumer.E.PUSHING, nothing
)
NOT_THE_NEXT = Mutant(
    "a mark that means the last offset",
    PartitionOffset,
    "mark",
    lambda managed, at, *_: _mark(managed, at - 1),
)
NO_BACKOFF = Mutant("no way back from a refusal", consumer_group_join, "_BACK_OFF", set[int]())
NO_FORGETTING = Mutant("an id that is not forgotten", consumer_group_join, "_FORGET", set[int]())
TICKS = Mutant("a ticker without AutoCommit.Enable", OffsetManager, "__init__", _always_commits)
NO_WAITING = Mutant("Setup and Cleanup that nobody waits for", Application, "run_callback", _returns_at_once)

MUTANTS: Table = {
    "S3-1": FOR_ALL,
    "S3-2": Mutant("a plan for one member only", balance_strategy, "assignments", _for_one_member),
    "S3-3": Mutant("records from the last to the first", partition_consumer, "parse", _backwards),
    "S3-4": Mutant("what is fetched is marked", Feeder, "push", _marks_what_is_fetched),
    "S3-5": NEVER_CLEAN,
    "S3-6": FOR_ALL,
    "S3-7": NO_WAITING,
    "S3-8": Mutant("claims of which nothing is told", GroupSession, "run_callback", nothing),
    "S3-9": Mutant("one partition for each Fetch", broker_consumer, "_build_request", _one_partition),
    "S3-10": NO_LIMIT,
    "S3-11": Mutant("the first part for each feeder", PartitionConsumer, "feed", _what_came_first),
    "S3-12": NO_LIMIT,
    "S3-13": Mutant(
        "one end of the log is asked for twice", consume_partition, "OLDEST", consume_partition.NEWEST
    ),
    "S3-14": TICKS,
    "S3-15": NEVER_CLEAN,
    "S3-16": NOT_THE_NEXT,
    "S3-17": Mutant("Retention 0 on the wire", OffsetManager, "request", _keeps_for_no_time),
    "S3-18": Mutant("an answer that always cleans", PartitionOffset, "on_committed", _cleans),
    "S3-19a": Mutant("a lookup that fails once", consumer_group_join, "_back_off", _gives_up),
    "S3-19b": Mutant("JoinGroup once more, silently", ANSWERS, consumer_group_join.S.JOINING, _asks_again),
    "S3-19c": Mutant("an id that no broker gave", consumer_group_join.Join, "__init__", _begins_with_an_id),
    "S3-19d": NO_FORGETTING,
    "S3-19e": NO_BACKOFF,
    "S3-19f": NO_BACKOFF,
    "S3-19g": Mutant(
        "a refusal that is ridden out",
        consumer_group_join,
        "_BACK_OFF",
        {*consumer_group_join._BACK_OFF, ErrorCode.GROUP_AUTHORIZATION_FAILED},
    ),
    "S3-19h": Mutant("a leader without a plan", consumer_group_join, "_on_joined", _plans_nothing),
    "S3-19i": Mutant("SyncGroup's failure, silently", ANSWERS, consumer_group_join.S.SYNCING, _asks_again),
    "S3-19j": NO_FORGETTING,
    "S3-19k": Mutant("no session without claims", consumer_group_join, "_finish", _needs_claims),
    "S3-19l": Mutant("claims as they come", consumer_group_join, "_finish", _unsorted),
    "S3-19m": NO_WAITING,
    "S3-20": Mutant(
        "no heartbeats", Heartbeat.TABLE["timer_elapsed"], consumer_group_session.H.WAITING, nothing
    ),
    "S3-21": TICKS,
    "S3-22": Mutant("Close without LeaveGroup", consumer_group_close, "leave", consumer_group_close.close),
    "S3-23": Mutant("a key without a place", partitioner, "murmur2", _next_place),
    "S3-24": NOT_THE_NEXT,
    "S3-25": Mutant("an id without the client's", joins, "_new_member_id", lambda call: call.random_id),
}
