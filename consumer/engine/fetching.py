"""Fetching ahead of the application, and handing records out.

Rules that hold here:

* One fetch is open per broker; it asks for every partition that has room in its buffer, in a fetch session.
  While it waits there for records, a partition that it doesn't ask for (just assigned, sought or drained) and
  that has some is asked for beside it, once, without a session: nobody waits fetch.max.wait.ms for another
  partition's sake.
* While the application works on what it got, the next piece of each partition is already fetched.
* An answer counts only for partitions whose epoch is still the one it was asked in: what was sought, revoked
  or reset meanwhile ignores it.
* The next poll takes up where the last one stopped, so that no partition starves behind a busy one.
* Errors of a partition are acted on when they arrive, but raised only when everything before was handed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproto.errors import KprotoError, RecordError, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kproto.wire.message import Message

from ..errors import broker_error, is_retriable
from ..options import ConsumerOptions
from ..records import ColumnBatch, ConsumerRecord
from .buffers import Chunk
from .connection import Call, Prepared
from .core import Core, MetadataKeeper
from .finding import Finder
from .network import FETCH, SIDE
from .positions import PartitionState
from .requests import ISOLATION
from .sessions import TOPIC_IDS_FROM, FetchSession, Want, by_id

OFFSET_OUT_OF_RANGE = 1
TOPIC_AUTHORIZATION_FAILED = 29
STALE_METADATA = (
    3,
    5,
    6,
    9,
    56,
    74,
    76,
    100,
    103,
    106,
)  # unknown topic, wrong leader or epoch, storage, topic ids


@dataclass(frozen=True, slots=True)
class _Asked:
    state: PartitionState
    epoch: int
    offset: int
    want: Want


class Fetcher:
    """Plans fetches, takes their answers, hands records out."""

    def __init__(self, core: Core[ConsumerOptions], metadata: MetadataKeeper, finder: Finder) -> None:
        self._core = core
        self._metadata = metadata
        self._finder = finder
        self._sessions: dict[int, FetchSession] = {}
        self._open: set[tuple[int, int]] = set()
        self._not_before: dict[int, int] = {}
        self._turn = 0
        self.stopped = False

    # ---- asking

    def due(self) -> int | None:
        waiting = self._not_before.items()
        times = [at for node, at in waiting if at > self._core.now and (node, FETCH) not in self._open]
        times += [
            state.retry_at
            for state in self._core.partitions.values()
            if state.fetchable and state.retry_at > self._core.now
        ]
        return min(times, default=None)

    def pump(self) -> None:
        if self.stopped:
            return
        now = self._core.now
        lanes: dict[tuple[int, int], list[PartitionState]] = {}
        for state in self._core.partitions.values():
            if not state.fetchable or state.retry_at > now:
                continue
            node = self._node(state)
            if node is None:
                state.retry_at = now + self._core.options.retry_backoff_ms
                self._metadata.need()
            elif self._not_before.get(node, 0) <= now:
                if (node, FETCH) not in self._open:
                    lanes.setdefault((node, FETCH), []).append(state)
                elif state.urgent and (node, SIDE) not in self._open:
                    lanes.setdefault((node, SIDE), []).append(state)
        for (node, lane), states in lanes.items():
            self._fetch(node, lane, states)

    def _node(self, state: PartitionState) -> int | None:
        if state.replica is not None:
            if state.replica_until > self._core.now and state.replica in self._core.view.brokers:
                return state.replica
            state.replica = None
        return self._core.view.leader(state.partition)

    def _fetch(self, node: int, lane: int, states: list[PartitionState]) -> None:
        core, options = self._core, self._core.options
        beside = lane == SIDE
        session = FetchSession(once=True) if beside else self._sessions.setdefault(node, FetchSession())
        asked: dict[TopicPartition, _Asked] = {}
        wants: dict[TopicPartition, Want] = {}
        for state in states:
            known = core.view.partition(state.partition)
            want = Want(
                core.view.topic_id(state.partition.topic),
                state.fetch_offset,
                options.max_partition_fetch_bytes,
                known.leader_epoch if known is not None else None,
            )
            wants[state.partition] = want
            asked[state.partition] = _Asked(state, state.epoch, state.fetch_offset, want)
            state.fetching = True

        def build(version: int) -> Message:
            return session.request(
                wants,
                version,
                max_wait_ms=0 if beside else options.fetch_max_wait_ms,
                min_bytes=options.fetch_min_bytes,
                max_bytes=options.fetch_max_bytes,
                isolation_level=ISOLATION[options.isolation_level],
                rack_id=options.client_rack,
            )

        self._open.add((node, lane))
        named = any(want.topic_id is None for want in wants.values())
        core.ask(
            Prepared(FetchRequest, build),
            lambda call: self._answered(node, lane, session, asked, call),
            node=node,
            lane=lane,
            max_version=TOPIC_IDS_FROM - 1 if named else None,
        )

    # ---- answers

    def _answered(
        self, node: int, lane: int, session: FetchSession, asked: Mapping[TopicPartition, _Asked], call: Call
    ) -> None:
        core = self._core
        self._open.discard((node, lane))
        live = {p: one for p, one in asked.items() if self._is_live(one)}
        for one in live.values():
            one.state.fetching = False
            if lane == SIDE:
                one.state.dry_at = one.offset
        response = call.response
        if not isinstance(response, FetchResponse):
            session.failed()
            self._not_before[node] = core.now + core.options.retry_backoff_ms
            for one in live.values():
                one.state.replica = None
            if isinstance(call.error, UnsupportedVersion):
                core.fail(call.error)
                self._not_before[node] = core.now + core.options.retry_backoff_max_ms
            self._metadata.need()
            return
        if not session.accepts(response, call.version):
            self._not_before[node] = core.now + core.options.retry_backoff_ms
            if response.error_code in STALE_METADATA:
                self._metadata.need()
            elif response.error_code and not is_retriable(response.error_code):
                core.fail(broker_error(response.error_code, "Fetch"))
            return
        ids = by_id((p, one.want) for p, one in asked.items()) if call.version >= TOPIC_IDS_FROM else {}
        for topic in response.responses:
            for entry in topic.partitions:
                if call.version >= TOPIC_IDS_FROM:
                    partition = ids.get((topic.topic_id, entry.partition_index))
                else:
                    partition = TopicPartition(topic.topic, entry.partition_index)
                one_asked = live.get(partition) if partition is not None else None
                if one_asked is not None:
                    self._take_in(node, one_asked, entry)

    def _is_live(self, asked: _Asked) -> bool:
        state = self._core.partitions.get(asked.state.partition)
        return state is asked.state and asked.state.epoch == asked.epoch

    def _take_in(self, node: int, asked: _Asked, entry: PartitionData) -> None:
        core, state = self._core, asked.state
        if entry.error_code:
            self._refused(node, state, entry)
            return
        state.high_watermark = entry.high_watermark if entry.high_watermark >= 0 else None
        state.last_stable_offset = entry.last_stable_offset if entry.last_stable_offset >= 0 else None
        state.log_start_offset = entry.log_start_offset if entry.log_start_offset >= 0 else None
        if entry.preferred_read_replica >= 0 and entry.preferred_read_replica != node:
            state.replica = entry.preferred_read_replica
            state.replica_until = core.now + core.options.metadata_max_age_ms
        if not entry.records:
            return
        aborted = None
        if core.options.isolation_level == "read_committed":
            aborted = [(one.producer_id, one.first_offset) for one in entry.aborted_transactions or ()]
        try:
            chunk = Chunk(entry.records, asked.offset, aborted, core.options.check_crcs)
        except RecordError as error:
            state.error = error
            core.wake()
            return
        if chunk.end > asked.offset:
            state.chunks.append(chunk)
            state.fetch_offset = chunk.end
            core.wake()

    def _refused(self, node: int, state: PartitionState, entry: PartitionData) -> None:
        core = self._core
        code = entry.error_code
        state.retry_at = core.now + core.options.retry_backoff_ms
        if state.replica is not None:
            # A follower's word is not final: the leader is asked next (M154).
            state.replica = None
            self._metadata.need()
        elif code == OFFSET_OUT_OF_RANGE:
            if not state.chunks:
                self._finder.out_of_range(state)
        elif code in STALE_METADATA:
            if entry.current_leader.leader_id >= 0:
                leader = entry.current_leader
                core.view.led(state.partition, leader.leader_id, leader.leader_epoch)
                state.retry_at = core.now
            if core.view.leader(state.partition) in (None, node):
                core.view.forget_leader(state.partition)
            self._metadata.need()
        elif code == TOPIC_AUTHORIZATION_FAILED or not is_retriable(code):
            state.retry_at = core.now + core.options.retry_backoff_max_ms
            core.fail(broker_error(code, "Fetch", str(state.partition)))
        else:
            self._metadata.need()

    # ---- handing out

    def rows(self, limit: int) -> list[ConsumerRecord]:
        """At most `limit` records, in turn from the partitions that have some."""
        found: list[ConsumerRecord] = []
        for state in self._in_turn():
            self._rows_of(state, limit, found)
            if len(found) >= limit:
                break
        return found

    def _rows_of(self, state: PartitionState, limit: int, found: list[ConsumerRecord]) -> None:
        topic, partition = state.partition
        while state.chunks and len(found) < limit:
            chunk = state.chunks[0]
            try:
                found += chunk.rows(topic, partition, limit - len(found))
            except KprotoError as error:
                state.error = error
            self._moved(state, chunk)
            if state.error is not None:
                return

    def columns(self) -> list[ColumnBatch]:
        """Everything that is buffered, one batch of columns for each fetched piece."""
        found: list[ColumnBatch] = []
        for state in self._in_turn():
            topic, partition = state.partition
            while state.chunks and state.error is None:
                chunk = state.chunks[0]
                try:
                    columns = chunk.columns()
                except KprotoError as error:
                    state.error = error
                    break
                if columns is not None:
                    found.append(ColumnBatch(topic, partition, columns))
                self._moved(state, chunk)
        return found

    def _in_turn(self) -> list[PartitionState]:
        states = [state for state in self._core.partitions.values() if state.chunks and state.deliverable]
        if not states:
            return states
        self._turn += 1
        at = self._turn % len(states)
        return states[at:] + states[:at]

    def _moved(self, state: PartitionState, chunk: Chunk) -> None:
        state.position = chunk.position
        if chunk.leader_epoch >= 0:
            state.leader_epoch = chunk.leader_epoch
        if chunk.exhausted and state.chunks:
            state.chunks.popleft()

    # ---- the end

    def close(self) -> None:
        """Frees the sessions at the brokers; nobody waits for the answers (M164)."""
        self.stopped = True
        for node, session in self._sessions.items():
            request = session.closing()
            if request is not None and (node, FETCH) not in self._open:
                self._core.ask(request, lambda call: None, node=node, lane=FETCH, timeout_ms=1000)
