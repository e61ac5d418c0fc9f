"""The goroutines of the type Generation (consumergroup.go): the heartbeat loop and the partition watchers.

* The goroutines share the generation's connection. Each has at most one request in flight.

* A heartbeat error, a lost connection or a changed number of partitions ends the generation. An error code in
  the first response to a watcher also ends the generation. In later responses, a watcher ignores all error
  codes except UNKNOWN_TOPIC_OR_PARTITION.

* A missing topic counts as a topic without partitions. In each generation, the first response to the topic's
  watcher has an error code, and so ends the generation.
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


def start(state: KafkaGoState, start_offsets: dict[TopicPartition, int], now: int, out: Out) -> None:
    """Start the generation with its watchers, its readers and the commit loop (nextGeneration, Reader.run).

    `start_offsets` maps partitions to the offsets at which the readers start.

    If the Reader was closed before the committed offsets arrived, no partition reader and no commit loop
    starts.
    """
    interval_ms = state.commit_ms
    watched_topics = state.topics if state.config.watch else ()
    watchers = [
        PartitionWatcher(topic, GoTicker(now + state.watch_ms, state.watch_ms)) for topic in watched_topics
    ]
    commit_ticker = None if interval_ms is None else GoTicker(now + interval_ms, interval_ms)
    state.generation = generation = KafkaGoGeneration(
        heartbeat_ticker=GoTicker(now + state.heartbeat_ms, state.heartbeat_ms),
        watchers=watchers,
        commits=ReaderCommitLoop(commit_ticker),
        readers=[],
    )
    for watcher in generation.watchers:
        watcher.open = read_partitions(state, [watcher.topic], out)
    if state.closing:
        generation.commits.ended = True
        return
    state.assignment_version += 1
    assigned_partitions = [
        TopicPartition(topic, partition)
        for topic in state.topics
        for partition in state.assigned.get(topic, ())
    ]
    for tp in assigned_partitions:
        reader = PartitionReader(tp, state.assignment_version, start_offsets.get(tp, state.start_offset))
        generation.readers.append(reader)
        partition_reader.initialize(state, reader, out)
    out.append(RunCallback("assigned", tuple(sorted(assigned_partitions)), wait=False))


def run_heartbeat_loop(state: KafkaGoState, generation: KafkaGoGeneration, now: int, out: Out) -> None:
    """Send a heartbeat if its ticker is due (heartbeatLoop)."""
    assert state.coordinator is not None
    if generation.heartbeat_in_flight is None and generation.heartbeat_ticker.take_tick(now):
        request = HeartbeatRequest(
            group_id=state.config.group_id, generation_id=state.generation_id, member_id=state.member_id
        )
        generation.heartbeat_in_flight = send_request(out, state.coordinator, request, 0)


def run_partition_watchers(state: KafkaGoState, generation: KafkaGoGeneration, now: int, out: Out) -> None:
    """Request metadata for each watcher whose ticker is due (partitionWatcher)."""
    for watcher in generation.watchers:
        if watcher.open is None and watcher.ticker.take_tick(now):
            watcher.open = read_partitions(state, [watcher.topic], out)


def on_response(generation: KafkaGoGeneration, request: Message, response: Message | None) -> bool:
    """Pass a response (None for a failed request) to the goroutine that sent the request.

    Returns whether this goroutine ends.
    """
    if request is generation.heartbeat_in_flight:
        generation.heartbeat_in_flight = None
        return not (isinstance(response, HeartbeatResponse) and not response.error_code)
    watcher = next((candidate for candidate in generation.watchers if request is candidate.open), None)
    return watcher is not None and _on_watcher_response(watcher, response)


def _on_watcher_response(watcher: PartitionWatcher, response: Message | None) -> bool:
    """Return whether the watcher ends.

    It ends if a request fails, if the first response has an error, or if a later response has another number
    of partitions than the first one. Of the later responses, those with an error are ignored, except that
    UNKNOWN_TOPIC_OR_PARTITION means 0 partitions.
    """
    watcher.open = None
    if not isinstance(response, MetadataResponse):
        return True
    code, partitions = parse_partitions(response)
    if watcher.count is None:
        watcher.count = len(partitions.get(watcher.topic, ()))
        return code != 0
    is_reliable = code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return is_reliable and len(partitions.get(watcher.topic, ())) != watcher.count


def add_deadlines(generation: KafkaGoGeneration, deadlines: list[int]) -> None:
    """Append the times of the next heartbeat and of the watchers' next requests to `deadlines`."""
    if generation.heartbeat_in_flight is None:
        deadlines.append(generation.heartbeat_ticker.at)
    for watcher in generation.watchers:
        if watcher.open is None:
            deadlines.append(watcher.ticker.at)


def has_ended(generation: KafkaGoGeneration) -> bool:
    """Return whether every goroutine has ended."""
    return (
        generation.commits.ended
        and generation.heartbeat_in_flight is None
        and all(watcher.open is None for watcher in generation.watchers)
        and all(reader.state is ReaderPhase.ENDED for reader in generation.readers)
    )


def read_partitions(state: KafkaGoState, topics: list[str], out: Out) -> Message:
    """Send Metadata for `topics` to the coordinator, and return the request (Conn.ReadPartitions)."""
    assert state.coordinator is not None
    _, highest_version = state.offered.get(3, (0, 6))
    version = 6 if highest_version >= 6 else 1
    return send_request(out, state.coordinator, metadata_request(topics, create=version >= 4), version)


def parse_partitions(response: MetadataResponse) -> tuple[int, dict[str, list[int]]]:
    """Return (code, partitions) of a response, as kafka-go's Conn.ReadPartitions does.

    `code` is the first error code of a topic, or 0. `partitions` maps each topic to its partitions. If `code`
    is not 0, `partitions` is empty.
    """
    code = next((topic.error_code for topic in response.topics if topic.error_code), 0)
    partitions = {
        topic.name or "": [partition.partition_index for partition in topic.partitions]
        for topic in response.topics
    }
    return code, {} if code else partitions
