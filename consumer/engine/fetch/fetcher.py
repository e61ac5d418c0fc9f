"""Fetching ahead of the application.

Rules that hold here:

* One fetch is open per broker; it asks for every partition that has room in its buffer, in a fetch session.
  While it may wait there for records, a partition that it doesn't ask for (just assigned, sought or drained)
  and that has some is asked for beside it, once, without a session: nobody waits fetch.max.wait.ms for
  another partition's sake. A fetch that has something to bring is answered at once, and the next one asks for
  all together.
* While the application works on what it got, the next piece of each partition is already fetched; those of
  one broker together, while each has a piece left: an answer with many costs little more than with one.
* A broker is asked for more while no more than `fetch_max_bytes` of what it leads is buffered: with the
  answer that is under way, twice that is the most. What is paused doesn't stand in the way of the others; as
  much of it is kept, and the rest is fetched again.
* An answer counts only for partitions whose epoch is still the one it was asked in: what was sought, revoked
  or reset meanwhile ignores it.
* Errors of a partition are acted on when they arrive, but raised only when everything before was handed out.
* A broker that asks for quiet is asked for nothing until then, on either connection. One that answers at
  once with nothing, again and again, doesn't wait for records: so we do.
* A partition whose leader has a newer epoch than the one that its position was checked against is checked
  again before anything more is fetched (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.error_codes import ErrorCode, describe
from kproto.errors import RecordError
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kproto.wire.message import Message

from ...errors import broker_error
from ...options import ConsumerOptions
from ..core import ClientCore
from ..error_actions import FETCH, ErrorAction, action_for
from ..metadata.cluster import BELIEVED
from ..metadata.updater import MetadataUpdater
from ..network.client import FETCH as FETCH_LANE
from ..network.client import MAIN, SIDE
from ..network.connection import Call, Outcome, Prepared
from ..positions.offset_lookup import OffsetLookup
from ..positions.partition_states import PartitionState
from ..requests import ISOLATION
from .buffers import CompletedFetch
from .replicas import PreferredReplicas
from .sessions import TOPIC_IDS_FROM, FetchSession, FetchTarget

# So many answers in a row may come at once and bring nothing: of a leader that sends to a follower, or a log
# that was just cut.
HASTY = 3
NOTHING = "there are records, and the answer brings none"
NOT_ASKED = "the answer is not about what was asked"


class _Node:
    """What is asked of one broker."""

    def __init__(self) -> None:
        self.session = FetchSession()
        self.open = False
        self.open_beside = False
        self.first = True
        self.not_before = 0
        self.failures = 0
        # Wanted since the open fetch went out.
        self.fresh: dict[TopicPartition, PartitionState] = {}
        # Wanted, and nothing of them is buffered; not wanted, as all that there is room for is buffered.
        self.dry: set[TopicPartition] = set()
        self.full: set[TopicPartition] = set()
        # How many bytes of its partitions are buffered.
        self.held = 0
        # Wanted, and the broker has some, as its last answer said. Whether it may wait with the open answer.
        self.rich: set[TopicPartition] = set()
        self.lingers = True
        # When it was asked, how long it may wait; answers in a row that didn't, and brought nothing.
        self.asked_at = self.may_wait = self.hasty = 0

    @property
    def waits(self) -> bool:
        """The application has enough of each partition, and will soon have room for more of them at once."""
        return bool(self.full) and not self.dry

    def forget(self, partition: TopicPartition) -> None:
        self.session.forget(partition)
        self.fresh.pop(partition, None)
        self.dry.discard(partition)
        self.rich.discard(partition)


class Fetcher:
    """Plans fetches and takes their answers."""

    def __init__(
        self, core: ClientCore[ConsumerOptions], metadata: MetadataUpdater, finder: OffsetLookup
    ) -> None:
        self._core = core
        self._metadata = metadata
        self._finder = finder
        self._replicas = PreferredReplicas(core)
        self._committed_only = core.options.isolation_level == "read_committed"
        self._nodes: dict[int, _Node] = {}
        # Whose session asks for a partition.
        self._at: dict[TopicPartition, int] = {}
        # The broker that will be asked for more of it, once there is room.
        self._full_at: dict[TopicPartition, int] = {}
        # What is buffered of a partition: at whose expense, and how many bytes. Those of paused partitions.
        self._held: dict[TopicPartition, tuple[_Node, int]] = {}
        self._paused: dict[TopicPartition, int] = {}
        self._paused_bytes = 0
        self.stopped = False

    # ---- what is wanted

    def look(self, state: PartitionState) -> None:
        """Something about this partition changed: who is asked for it now, and from where."""
        partition = state.partition
        node = self._node(state)
        before = self._at.get(partition)
        if before is not None and before != node:
            self._nodes[before].forget(partition)
            del self._at[partition]
        if state.fetches or partition in self._held or partition in self._paused:
            self._note_held(state)
        if state.fetches or partition in self._full_at:
            self._note_full(state)
        if node is None:
            return
        core = self._core
        known = core.view.partition(partition)
        lane = self._nodes.get(node)
        if lane is None:
            lane = self._nodes[node] = _Node()
        self._at[partition] = node
        want = FetchTarget(
            core.view.topic_id(partition.topic),
            state.fetch_offset,
            core.options.max_partition_fetch_bytes,
            known.leader_epoch if known is not None else None,
            state.epoch,
        )
        lane.session.want(partition, want)
        (lane.dry.discard if state.fetches else lane.dry.add)(partition)
        (lane.rich.add if state.has_more else lane.rich.discard)(partition)
        if lane.open and not lane.session.asks(partition):
            lane.fresh[partition] = state

    def on_records_returned(self, state: PartitionState) -> bool:
        """Note that the buffer of `state` was emptied. False if what is fetched changes: call `look` then."""
        partition = state.partition
        node = self._at.get(partition)
        if node is None or state.fetches or partition in self._full_at or partition not in self._held:
            return False
        holder, size = self._held.pop(partition)
        holder.held -= size
        self._nodes[node].dry.add(partition)
        return True

    def _note_held(self, state: PartitionState) -> None:
        partition, core = state.partition, self._core
        lane, size = self._held.pop(partition, (None, 0))
        if lane is not None:
            lane.held -= size
        self._paused_bytes -= self._paused.pop(partition, 0)
        size = sum(len(chunk.data) for chunk in state.fetches)
        if state.released or state.error is not None or not size:
            return
        if state.paused:
            if self._paused_bytes + size > core.options.fetch_max_bytes:
                state.discard_buffer()
            else:
                self._paused[partition] = size
                self._paused_bytes += size
            return
        node = core.view.leader(partition) if state.replica is None else state.replica
        if node is not None and node in self._nodes:
            lane = self._nodes[node]
            lane.held += size
            self._held[partition] = lane, size

    def _note_full(self, state: PartitionState) -> None:
        partition = state.partition
        node: int | None = None
        if state.is_full:
            node = self._core.view.leader(partition) if state.replica is None else state.replica
        before = self._full_at.get(partition)
        if before is not None and before != node:
            self._nodes[before].full.discard(partition)
            del self._full_at[partition]
        if node is not None and node in self._nodes:
            self._nodes[node].full.add(partition)
            self._full_at[partition] = node

    def _node(self, state: PartitionState) -> int | None:
        """The broker to ask for it now; None when there is nothing to ask for, or nobody to ask."""
        if not state.is_fetchable or state.retry_at > self._core.now:
            return None
        node = self._replicas.asked(state)
        if node is None:
            self._metadata.need()  # whose answer brings everybody back here
        return node

    # ---- asking

    def due(self) -> int | None:
        waiting = [
            lane.not_before
            for lane in self._nodes.values()
            if not lane.open and lane.session.wanted and lane.not_before > self._core.now
        ]
        return min(waiting, default=None)

    def pump(self) -> None:
        if self.stopped:
            return
        for node, lane in self._nodes.items():
            if lane.not_before > self._core.now or lane.held > self._core.options.fetch_max_bytes:
                continue
            if not lane.open:
                if lane.session.wanted and not lane.waits:
                    self._fetch(node, lane)
            elif lane.fresh and lane.lingers and not lane.open_beside:
                self._fetch_beside(node, lane)

    def _fetch(self, node: int, lane: _Node) -> None:
        def answered(call: Call) -> None:
            lane.open = False
            self._take(node, lane, lane.session, call)

        options = self._core.options
        wait = 0 if lane.first and not options.as_java else options.fetch_max_wait_ms
        lane.first = False
        lane.asked_at, lane.may_wait = self._core.now, wait if options.fetch_min_bytes else 0
        lane.lingers = not lane.rich or options.fetch_min_bytes > 1
        try:
            lane.open = True
            self._ask(node, FETCH_LANE, lane.session, answered, wait)
        except BaseException:  # Ctrl-C: it is not under way
            lane.open = False
            raise
        lane.fresh = {}

    def _fetch_beside(self, node: int, lane: _Node) -> None:
        fresh, lane.fresh = lane.fresh, {}
        session = FetchSession(once=True)
        states: list[tuple[PartitionState, int]] = []
        for partition, state in fresh.items():
            want = lane.session.wanted.get(partition)
            if want is not None and state.likely_has_records and state.epoch == want.asked_in:
                session.want(partition, want)
                states.append((state, state.epoch))
        if not states:
            return

        def answered(call: Call) -> None:
            lane.open_beside = False
            for state, epoch in states:
                if state.epoch == epoch:
                    state.extra_fetch_open = False
                    state.empty_at = state.fetch_offset
                    state.mark_dirty()
            self._take(node, lane, session, call)

        try:
            lane.open_beside = True
            self._ask(node, SIDE, session, answered, 0)
        except BaseException:  # Ctrl-C: it is not under way
            lane.open_beside = False
            raise
        for state, _ in states:
            state.extra_fetch_open = True
            state.mark_dirty()

    def _ask(
        self, node: int, lane: int, session: FetchSession, then: Callable[[Call], None], max_wait_ms: int
    ) -> None:
        options, plan = self._core.options, session.plan()

        def build(version: int) -> Message:
            return plan.request(
                version,
                max_wait_ms=max_wait_ms,
                min_bytes=options.fetch_min_bytes,
                max_bytes=options.fetch_max_bytes,
                isolation_level=ISOLATION[options.isolation_level],
                rack_id=self._replicas.rack(node),
            )

        self._core.send(
            Prepared(FetchRequest, build),
            then,
            node=node,
            lane=lane,
            max_version=TOPIC_IDS_FROM - 1 if session.named else None,
        )

    # ---- answers

    def _take(self, node: int, lane: _Node, session: FetchSession, call: Call) -> None:
        core = self._core
        response = call.response
        if not isinstance(response, FetchResponse):
            session.failed()
            if call.outcome is Outcome.NO_RESPONSE:
                core.report_failure("Fetch", str(call.error), again=lane.failures > 0)
            self._leave_alone(lane)
            self._metadata.need()
            if call.outcome is not Outcome.NO_RESPONSE and call.error is not None:
                lane.not_before = core.now + core.options.retry_backoff_max_ms
                core.queue_error(call.error)
            else:
                self._forget_replica(node)
            return
        for place in response.node_endpoints:
            core.view.placed(place.node_id, place.host, place.port, place.rack)
        quiet_until = max(
            core.network.throttled_until(node, FETCH_LANE), core.network.throttled_until(node, SIDE)
        )
        lane.not_before = max(lane.not_before, quiet_until)
        if not session.accepts(response, call.version):
            if quiet_until > core.now and not response.error_code:
                return  # nothing but that (KIP-219)
            do = action_for(FETCH, response.error_code)
            if do is ErrorAction.RAISE:
                core.queue_error(broker_error(response.error_code, "Fetch"))
            else:
                why = describe(response.error_code) if response.error_code else NOT_ASKED
                core.report_failure("Fetch", why, again=lane.failures > 0)
            if do is ErrorAction.REFRESH_METADATA:
                self._metadata.need()
            self._leave_alone(lane)
            return
        mates: list[CompletedFetch] = []
        brought = refused = False
        for topic in response.responses:
            for entry in topic.partitions:
                brought = brought or bool(entry.records)
                refused = refused or entry.error_code != ErrorCode.NONE
                partition = session.name(topic.topic, topic.topic_id, entry.partition_index, call.version)
                if partition is None:
                    continue
                want, state = session.told[partition], core.partitions.get(partition)
                if (
                    state is not None
                    and state.epoch == want.asked_in
                    and state.fetch_offset == want.offset
                    and (not state.extra_fetch_open or session is not lane.session)
                ):
                    self._take_in(node, state, entry, mates)
        if brought or (session is lane.session and session.proven):
            lane.failures = 0
        if not brought and session is lane.session:
            lane.rich.clear()  # whatever was believed: nothing is there
        if session is lane.session and not refused:
            self._look_at_haste(lane, brought)

    def _look_at_haste(self, lane: _Node, brought: bool) -> None:
        """Who answers at once, has nothing, and again, is left alone for as long as it should have waited."""
        core = self._core
        if brought or core.now - lane.asked_at >= lane.may_wait // 2:
            lane.hasty = 0
            return
        lane.hasty += 1
        if lane.hasty > HASTY:
            pause = min(core.backoff.after(lane.hasty - HASTY), lane.may_wait)
            lane.not_before = max(lane.not_before, core.now + pause)
            for partition in lane.session.wanted:
                state = core.partitions.get(partition)
                if state is not None and state.has_more and state.retry_at <= core.now:
                    core.report_failure("Fetch", NOTHING, partition, again=lane.hasty > HASTY + 1)

    def _leave_alone(self, lane: _Node) -> None:
        lane.not_before = self._core.now + self._core.backoff.after(lane.failures)
        lane.failures += 1

    def _forget_replica(self, node: int) -> None:
        """A follower that doesn't answer: those that were sent there go back."""
        for partition in [partition for partition, at in self._at.items() if at == node]:
            state = self._core.partitions.get(partition)
            if state is not None and state.replica == node:
                self._replicas.back(state)

    def _take_in(
        self, node: int, state: PartitionState, entry: PartitionData, mates: list[CompletedFetch]
    ) -> None:
        core = self._core
        if entry.error_code:
            self._refused(node, state, entry)
            return
        state.high_watermark = entry.high_watermark if entry.high_watermark >= 0 else None
        # Brokers tell it also to those who read behind it.
        stable = entry.last_stable_offset if self._committed_only else -1
        state.last_stable_offset = stable if stable >= 0 else None
        state.log_start_offset = entry.log_start_offset if entry.log_start_offset >= 0 else None
        preferred = entry.preferred_read_replica
        if preferred >= 0 and preferred not in core.view.brokers:
            # Newer than the metadata; until they come the leader says the same again, at once.
            self._metadata.need()
            if not entry.records:
                self._replicas.back(state)
                self._rest(state, f"node {preferred}, to which the leader sends, is not known")
                return
        elif preferred >= 0 and preferred != node:
            self._replicas.sent(state, preferred)
        if not entry.records:
            state.failures = 0
            return
        self._replicas.brought(state, node)
        aborted = None
        if self._committed_only:
            aborted = [(one.producer_id, one.first_offset) for one in entry.aborted_transactions or ()]
        try:
            options = core.options
            chunk = CompletedFetch(
                entry.records,
                state.fetch_offset,
                aborted,
                options.check_crcs,
                options.max_decompressed_bytes,
                mates,
            )
        except RecordError as error:
            if state.fetches:  # what is before it is handed out first
                self._rest(state)
            else:
                state.fail(error)
                core.wake_poll()
            return
        if chunk.end > state.fetch_offset:
            state.add_fetch(chunk)
            core.wake_poll()
        else:
            self._rest(state, "the answer brings nothing from the position on")

    def _rest(self, state: PartitionState, why: str = "") -> None:
        if why:
            self._core.report_failure("Fetch", why, state.partition, again=state.failures > 0)
        state.back_off_until(self._core.next_retry_at(state.failures))
        state.failures += 1

    def _refused(self, node: int, state: PartitionState, entry: PartitionData) -> None:
        core = self._core
        code = entry.error_code
        do = action_for(FETCH, code)
        if do not in (ErrorAction.RESET_OFFSET, ErrorAction.RAISE):
            core.report_failure("Fetch", describe(code), state.partition, again=state.failures > 0)
        if state.replica is not None:
            self._replicas.back(state)
            self._metadata.need()
            return
        at = core.next_retry_at(state.failures)
        state.failures += 1
        match do:
            case ErrorAction.RESET_OFFSET:
                if state.fetches:
                    state.back_off_until(at)
                else:
                    self._finder.out_of_range(state)
            case ErrorAction.REFRESH_METADATA:
                self._led_by_another(node, state, entry, at)
            case ErrorAction.RAISE:
                state.back_off_until(core.now + core.options.retry_backoff_max_ms)
                core.queue_error(broker_error(code, "Fetch", str(state.partition)))
            case _:
                state.back_off_until(at)
                self._metadata.need()

    def _led_by_another(self, node: int, state: PartitionState, entry: PartitionData, at: int) -> None:
        view = self._core.view
        leader = entry.current_leader
        if leader.leader_id >= 0:
            view.led(state.partition, leader.leader_id, leader.leader_epoch)
        if view.leader(state.partition) in (None, node):
            # The broker is behind, for a moment; or there is no such epoch.
            if entry.error_code != ErrorCode.UNKNOWN_LEADER_EPOCH or state.failures > BELIEVED:
                view.forget_leader(state.partition)
            state.back_off_until(at)
        elif state.failures > 1:
            state.back_off_until(
                at
            )  # the one who was named knows better, too: brokers that send us on and on
        else:
            state.mark_dirty()
        self._metadata.need()

    # ---- the end

    def close(self, then: Callable[[], None], timeout_ms: int) -> None:
        """Frees the sessions at the brokers (M164), then calls `then`; at most so long."""
        self.stopped = True
        open_ones = 0

        def closed(call: Call) -> None:
            nonlocal open_ones
            open_ones -= 1
            if not open_ones:
                then()

        # Not behind a fetch that waits for records.
        requests = [
            (node, request)
            for node, lane in self._nodes.items()
            if node in self._core.view.brokers and (request := lane.session.closing()) is not None
        ]
        open_ones = len(requests)
        for node, request in requests:
            self._core.send(request, closed, node=node, lane=MAIN, timeout_ms=timeout_ms)
        if not requests:
            then()
