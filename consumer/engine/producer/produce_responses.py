"""What becomes of a producer's batches: in the log, sent again, divided, numbered anew, or given up.

Rules that hold here:

* After a failure a lane sends nothing new until everything that was under way is back, then all goes out
  again in its old order.
* What the broker refuses as too large, or for single records, goes on in parts, each in the place of the
  whole.
* When a batch is given up whose fate is unknown, what has no number yet goes out under the next epoch, after
  all that has one; when the broker says that one is missing, it and all after it are not in the log, and are
  numbered anew (as Java does since KIP-360).
* What is given up for the same reason, batch by batch, is in the log at once, and then after growing gaps as
  a sum; each delivery, and flush and close, tell all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kproto.error_codes import ErrorCode, describe
from kproto.errors import AuthenticationFailed, BrokerError, EncodeError, KprotoError, UnsupportedVersion
from kproto.messages.produce import PartitionProduceResponse

from ...errors import broker_error
from ...options import ProducerOptions
from ..core import ClientCore
from ..error_actions import PRODUCE, ErrorAction, action_for
from ..events import CallBack
from ..metadata.updater import MetadataUpdater
from ..timing import ReportIntervals
from .accumulator import RecordAccumulator
from .batches import LAST_SEQUENCE, ProducerBatch, divided

_MOST_REASONS = 64


class ProduceResponses:
    """Decides by what brokers answer. Who asks puts the batch's lane where it belongs afterwards."""

    def __init__(
        self, core: ClientCore[ProducerOptions], records: RecordAccumulator, metadata: MetadataUpdater
    ) -> None:
        self._core = core
        self._records = records
        self._metadata = metadata
        # Who is told of each batch that is given up.
        self.given_up: Callable[[ProducerBatch, KprotoError], None] = lambda batch, error: None
        # Why -> how many records were given up since that was told last.
        self._lost: dict[str, tuple[int, ReportIntervals]] = {}

    def unanswered(self, batch: ProducerBatch, error: KprotoError) -> None:
        batch.lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = str(error)
        if isinstance(error, UnsupportedVersion | EncodeError | AuthenticationFailed):
            self.give_up(batch, error)
        else:
            self._core.view.forget_leader(batch.partition)
            self._retry(batch)

    def answered(self, batch: ProducerBatch, answer: PartitionProduceResponse | None) -> None:
        lane = batch.lane
        if answer is None:
            lane.under_way.remove(batch)
            if not batch.done:
                batch.why = "the broker's response does not contain the partition"
                self._retry(batch)
            return
        what = action_for(PRODUCE, answer.error_code)
        if what is ErrorAction.USE:
            self.succeed(batch, answer.base_offset, answer.log_append_time_ms)
            return
        lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = f"the broker answers {describe(answer.error_code)}"
        if answer.error_message:
            batch.why += f": {answer.error_message}"
        if what is ErrorAction.SPLIT_BATCH and len(batch) > 1:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])
        elif what is ErrorAction.DROP_INVALID_RECORDS and len(batch) > 1 and not self._whole:
            self._sort_out(batch, answer)
        elif (
            what is ErrorAction.RENUMBER
            and self._core.options.enable_idempotence
            and self._may_renumber(batch)
        ):
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                lane.unexpected.append(batch)
            self._renumber(batch)
        elif what is ErrorAction.RETRY or what is ErrorAction.REFRESH_METADATA:
            if what is ErrorAction.REFRESH_METADATA:
                self._led(batch, answer)
            self._retry(batch)
        else:
            self.give_up(batch, self._error(batch, answer))

    def _led(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Another broker leads now; the answer may say which (KIP-951)."""
        view = self._core.view
        view.forget_leader(batch.partition)
        leader = answer.current_leader
        if leader.leader_id in view.brokers and leader.leader_epoch >= 0:
            view.set_leader(batch.partition, leader.leader_id, leader.leader_epoch)
        else:
            self._metadata.look_up(batch.partition.topic)
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            batch.lane.known = False  # perhaps it is another topic of that name, soon

    def _error(self, batch: ProducerBatch, answer: PartitionProduceResponse, index: int = -1) -> BrokerError:
        words = answer.error_message or ""
        if self._whole and answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            words = words or "fenced by a newer producer, or transaction_timeout_ms was over: abort() tells"
        for one in answer.record_errors:
            if index in (-1, one.batch_index):
                words = f"{words} record {one.batch_index}: {one.batch_index_error_message or ''}".strip()
                break
        detail = f"{batch.partition}, {len(batch)} records" + (f": {words}" if words else "")
        return broker_error(answer.error_code, "Produce", detail)

    def succeed(self, batch: ProducerBatch, offset: int | None, append_time: int) -> None:
        lane = batch.lane
        lane.under_way.remove(batch)
        if batch.identity == lane.identity:
            lane.known = True
        if lane.unexpected:
            self._are_there(batch)
        if batch.done:
            return
        batch.base_offset = offset if offset is not None and offset >= 0 else None
        batch.log_append_time = append_time if append_time >= 0 else None
        self.end(batch)

    def _are_there(self, later: ProducerBatch) -> None:
        """A broker takes numbers in order. That it has this batch, and did not expect those before it, says
        that it has those, too: one that was killed knows only the last batch of a producer. Where, nobody
        knows. This one was under way when they were refused, so it is the same broker that says so."""
        lane = later.lane
        there = [one for one in lane.unexpected if one.order < later.order and one.identity == later.identity]
        if not there:
            return
        lane.unnumber = None
        for batch in there:
            lane.unexpected.remove(batch)
            if not batch.done:
                lane.waiting.remove(batch)
                self.end(batch)

    def _retry(self, batch: ProducerBatch, *, innocent: bool = False) -> None:
        """Back into the queue, in the old order; the lane waits until all is back.

        An `innocent` batch failed only because the one before it did: it waits for no backoff of its own.
        """
        lane = batch.lane
        lane.halted = True
        if not innocent:
            batch.retry_at = self._core.now + self._core.backoff.after(batch.failures)
            batch.failures += 1
        lane.put_back(batch)

    @property
    def _whole(self) -> bool:
        """In a transaction one record that fails fails them all, and no number comes twice."""
        return self._core.options.transactional_id is not None

    def _may_renumber(self, batch: ProducerBatch) -> bool:
        return not self._whole or self._is_behind(batch)

    @staticmethod
    def _is_behind(batch: ProducerBatch) -> bool:
        lane = batch.lane
        return any(other.order < batch.order for other in (*lane.under_way, *lane.waiting))

    def _renumber(self, batch: ProducerBatch) -> None:
        """The broker doesn't expect this number: the batch before it is not there yet, or never will be."""
        lane = batch.lane
        if self._is_behind(batch):
            self._retry(batch, innocent=True)
        else:
            lane.not_there(batch.order)
            self._retry(batch)

    def give_up(self, batch: ProducerBatch, error: KprotoError) -> None:
        batch.error = error
        self._tell(batch, str(error))
        lane = batch.lane
        if batch.sequence >= 0:
            lane.renew = True  # its numbers are a hole now, or not: nobody knows
        if batch in lane.waiting:
            lane.waiting.remove(batch)
        self.end(batch)
        self.given_up(batch, error)

    def _tell(self, batch: ProducerBatch, why: str) -> None:
        count, gaps = self._lost.pop(why, (0, ReportIntervals()))
        count += len(batch)
        if gaps.is_due(self._core.now):
            self._core.report("undelivered", [batch.partition], reason=f"{count} records: {why}")
            count = 0
        self._lost[why] = count, gaps
        if len(self._lost) > _MOST_REASONS:
            del self._lost[next(iter(self._lost))]

    def end(self, batch: ProducerBatch) -> None:
        for callback in self._records.end(batch):
            self._core.actions.append(CallBack(callback))
        self._core.wake_poll()

    def _sort_out(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Some records are bad. The broker may say which: then the others go on alone; else halves do."""
        bad = {one.batch_index for one in answer.record_errors} & set(range(len(batch)))
        good = [index for index in range(len(batch)) if index not in bad]
        if bad and not good:
            self.give_up(batch, self._error(batch, answer))
        elif bad:
            parts = self._divide(batch, [good, *([index] for index in sorted(bad))])
            for index, part in zip(sorted(bad), parts[1:], strict=True):
                self.give_up(part, self._error(part, answer, index))
        else:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])

    def _divide(self, batch: ProducerBatch, groups: Sequence[Sequence[int]]) -> list[ProducerBatch]:
        """The records go on in several batches, each with those of a group, in the place of this one.

        None of them is in the log, nor is what was sent after them: all of that is numbered anew, and not
        what was sent before and may be there. In a transaction the parts have the numbers that the whole had.
        """
        lane = batch.lane
        parts, places = divided(batch, groups)
        self._records.divided(batch, parts, places)
        lane.halted = True
        if self._core.options.enable_idempotence and not self._whole:
            lane.not_there(batch.order)
        at = batch.sequence
        for part in parts:
            if self._whole:
                part.identity, part.sequence, part.number = batch.identity, at & LAST_SEQUENCE, batch.number
                at += len(part)
            lane.put_back(part)
        lane.numbered += len(parts) - 1
        return parts
