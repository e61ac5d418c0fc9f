"""consumergroup.go, the type Generation: its routines that beat and watch, and when all have ended.

Rules that hold here:

* The heartbeat and the watchers share the generation's connection, and each has one request open at most.
* Whatever isn't OK ends them: any heartbeat error, a lost connection, a changed number of partitions. Only an
  error code that answers a watcher is passed over, unless it answers its first question.
* A topic that isn't there has no partitions: a watcher of it ends its generation at once, again and again.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...messages.metadata import MetadataResponse
from ...wire.message import Message
from ..common import metadata_request
from ..contract import RunCallback
from . import partition_reader
from .state import (
    GoTicker,
    KafkaGoGeneration,
    KafkaGoState,
    Out,
    PartitionReader,
    PartitionWatcher,
    ReaderCommitLoop,
    ReaderPhase,
    send_request,
)


def start(state: KafkaGoState, start: dict[TopicPartition, int], now: int, out: Out) -> None:
    """nextGeneration's end, and what Reader.run makes of it: readers and the commit loop.

    When the Reader was closed meanwhile nobody takes the generation, so these are not started.
    """
    every = state.commit_ms
    watched = state.topics if state.config.watch else ()
    state.generation = made = KafkaGoGeneration(
        heartbeat_ticker=GoTicker(now + state.heartbeat_ms, state.heartbeat_ms),
        watchers=[PartitionWatcher(one, GoTicker(now + state.watch_ms, state.watch_ms)) for one in watched],
        commits=ReaderCommitLoop(None if every is None else GoTicker(now + every, every)),
        readers=[],
    )
    for watcher in made.watchers:
        watcher.open = read_partitions(state, [watcher.topic], out)
    if state.closing:
        made.commits.ended = True
        return
    state.assignment_version += 1
    owned = [TopicPartition(topic, one) for topic in state.topics for one in state.assigned.get(topic, ())]
    for tp in owned:
        found = PartitionReader(tp, state.assignment_version, start.get(tp, state.start_offset))
        made.readers.append(found)
        partition_reader.initialize(state, found, out)
    out.append(RunCallback("assigned", tuple(sorted(owned)), wait=False))


def run_heartbeat_loop(state: KafkaGoState, generation: KafkaGoGeneration, now: int, out: Out) -> None:
    """heartbeatLoop."""
    assert state.coordinator is not None
    if generation.heartbeat_in_flight is None and generation.heartbeat_ticker.take(now):
        request = HeartbeatRequest(
            group_id=state.config.group_id, generation_id=state.generation_id, member_id=state.member_id
        )
        generation.heartbeat_in_flight = send_request(out, state.coordinator, request, 0)


def run_partition_watchers(state: KafkaGoState, generation: KafkaGoGeneration, now: int, out: Out) -> None:
    """partitionWatcher."""
    for watcher in generation.watchers:
        if watcher.open is None and watcher.ticker.take(now):
            watcher.open = read_partitions(state, [watcher.topic], out)


def on_response(generation: KafkaGoGeneration, request: Message, response: Message | None) -> bool:
    """A heartbeat or a watcher's question was answered, or (None) failed: True when that ends its routine."""
    if request is generation.heartbeat_in_flight:
        generation.heartbeat_in_flight = None
        return not (isinstance(response, HeartbeatResponse) and not response.error_code)
    watcher = next((one for one in generation.watchers if request is one.open), None)
    return watcher is not None and _on_watcher_response(watcher, response)


def _on_watcher_response(watcher: PartitionWatcher, response: Message | None) -> bool:
    watcher.open = None
    if not isinstance(response, MetadataResponse):
        return True
    code, found = parse_partitions(response)
    if watcher.count is None:
        watcher.count = len(found.get(watcher.topic, ()))
        return code != 0
    known = code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return known and len(found.get(watcher.topic, ())) != watcher.count


def add_deadlines(generation: KafkaGoGeneration, found: list[int]) -> None:
    """Adds the times at which it has something to say."""
    if generation.heartbeat_in_flight is None:
        found.append(generation.heartbeat_ticker.at)
    for one in generation.watchers:
        if one.open is None:
            found.append(one.ticker.at)


def has_ended(generation: KafkaGoGeneration) -> bool:
    """Whether every routine has ended."""
    return (
        generation.commits.ended
        and generation.heartbeat_in_flight is None
        and all(one.open is None for one in generation.watchers)
        and all(one.phase is ReaderPhase.ENDED for one in generation.readers)
    )


def read_partitions(state: KafkaGoState, topics: list[str], out: Out) -> Message:
    assert state.coordinator is not None
    version = 6 if state.offered.get(3, (0, 6))[1] >= 6 else 1
    return send_request(out, state.coordinator, metadata_request(topics, create=version >= 4), version)


def parse_partitions(response: MetadataResponse) -> tuple[int, dict[str, list[int]]]:
    """Conn.ReadPartitions: the first topic's error ends it, whatever the others say."""
    code = next((one.error_code for one in response.topics if one.error_code), 0)
    found = {one.name or "": [each.partition_index for each in one.partitions] for one in response.topics}
    return code, {} if code else found
