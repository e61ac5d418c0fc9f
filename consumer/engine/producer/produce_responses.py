"""Handles Produce responses: a batch is in the log, retried, split, renumbered, or fails.

Rules (Java's Sender and TransactionManager):

* After a failure a queue sends nothing new until nothing of it is in flight. Then all its batches are sent
  again in their order.
* A batch that is too large, or contains invalid records, continues in parts that take its place.
* If a batch fails that may be in the log, batches without a sequence number get the next epoch, after all
  numbered ones. If the broker misses a batch, that batch and all later ones are not in the log, and are
  renumbered (as in Java since KIP-360).
* Failures with the same reason are reported at once, then in total after growing intervals. Each delivery,
  flush and close also report theirs.
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
    """Handles Produce responses. The caller must reschedule the batch's queue afterwards."""

    def __init__(
        self, core: ClientCore[ProducerOptions], records: RecordAccumulator, metadata: MetadataUpdater
    ) -> None:
        self._core = core
        self._records = records
        self._metadata = metadata
        # Called for each batch that fails.
        self.given_up: Callable[[ProducerBatch, KprotoError], None] = lambda batch, error: None
        # Failure reason -> (records failed since the last report, when to report again).
        self._lost: dict[str, tuple[int, ReportIntervals]] = {}

    def unanswered(self, batch: ProducerBatch, error: KprotoError) -> None:
        """Handle the failure of a request: retry the batch, or fail it if a retry cannot help."""
        batch.lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = str(error)
        if isinstance(error, UnsupportedVersion | EncodeError | AuthenticationFailed):
            self.give_up(batch, error)
        else:
            self._core.view.forget_leader(batch.partition)
            self._retry(batch)

    def answered(self, batch: ProducerBatch, response: PartitionProduceResponse | None) -> None:
        """Handle the response for one batch; None if the response does not contain its partition."""
        lane = batch.lane
        if response is None:
            lane.under_way.remove(batch)
            if not batch.done:
                batch.why = "the broker's response does not contain the partition"
                self._retry(batch)
            return
        action = action_for(PRODUCE, response.error_code)
        if action is ErrorAction.USE:
            self.succeed(batch, response.base_offset, response.log_append_time_ms)
            return
        lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = f"the broker answers {describe(response.error_code)}"
        if response.error_message:
            batch.why += f": {response.error_message}"
        if action is ErrorAction.SPLIT_BATCH and len(batch) > 1:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])
        elif action is ErrorAction.DROP_INVALID_RECORDS and len(batch) > 1 and not self._whole:
            self._sort_out(batch, response)
        elif (
            action is ErrorAction.RENUMBER
            and self._core.options.enable_idempotence
            and self._may_renumber(batch)
        ):
            if response.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                lane.unexpected.append(batch)
            self._renumber(batch)
        elif action is ErrorAction.RETRY or action is ErrorAction.REFRESH_METADATA:
            if action is ErrorAction.REFRESH_METADATA:
                self._led(batch, response)
            self._retry(batch)
        else:
            self.give_up(batch, self._error(batch, response))

    def _led(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None:
        """Find the new leader, which the response may name (KIP-951)."""
        view = self._core.view
        view.forget_leader(batch.partition)
        leader = response.current_leader
        if leader.leader_id in view.brokers and leader.leader_epoch >= 0:
            view.set_leader(batch.partition, leader.leader_id, leader.leader_epoch)
        else:
            self._metadata.look_up(batch.partition.topic)
        if response.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            batch.lane.known = False  # The topic may have been re-created under this name.

    def _error(
        self, batch: ProducerBatch, response: PartitionProduceResponse, index: int = -1
    ) -> BrokerError:
        """Return the error of a batch, or of one of its records."""
        message = response.error_message or ""
        if self._whole and response.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            message = (
                message or "fenced by a newer producer, or transaction_timeout_ms was over: abort() tells"
            )
        for record_error in response.record_errors:
            if index in (-1, record_error.batch_index):
                message = f"{message} record {record_error.batch_index}: {record_error.batch_index_error_message or ''}".strip()
                break
        detail = f"{batch.partition}, {len(batch)} records" + (f": {message}" if message else "")
        return broker_error(response.error_code, "Produce", detail)

    def succeed(self, batch: ProducerBatch, offset: int | None, append_time: int) -> None:
        """End a batch successfully."""
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
        """End earlier batches whose sequence the broker did not expect: they are in the log as well.

        A broker accepts batches in order, so it has those before `later`. A broker that was killed only
        remembers the last batch, and their offsets are unknown. `later` was in flight when they were
        rejected, so the same broker says both.
        """
        lane = later.lane
        in_log = [
            one for one in lane.unexpected if one.order < later.order and one.identity == later.identity
        ]
        if not in_log:
            return
        lane.unnumber = None
        for batch in in_log:
            lane.unexpected.remove(batch)
            if not batch.done:
                lane.waiting.remove(batch)
                self.end(batch)

    def _retry(self, batch: ProducerBatch, *, innocent: bool = False) -> None:
        """Put the batch back into its queue, which waits until nothing is in flight.

        An `innocent` batch only failed because an earlier one did: it has no backoff of its own.
        """
        lane = batch.lane
        lane.halted = True
        if not innocent:
            batch.retry_at = self._core.now + self._core.backoff.after(batch.failures)
            batch.failures += 1
        lane.put_back(batch)

    @property
    def _whole(self) -> bool:
        """Whether the batches belong to a transaction: they succeed together, and no sequence number is
        reused.
        """
        return self._core.options.transactional_id is not None

    def _may_renumber(self, batch: ProducerBatch) -> bool:
        """Return whether the batch may get another sequence number."""
        return not self._whole or self._is_behind(batch)

    @staticmethod
    def _is_behind(batch: ProducerBatch) -> bool:
        """Return whether an earlier batch of the queue is not finished."""
        lane = batch.lane
        return any(batch_before.order < batch.order for batch_before in (*lane.under_way, *lane.waiting))

    def _renumber(self, batch: ProducerBatch) -> None:
        """Handle an unexpected sequence number: an earlier batch is not in the log yet, or never will be."""
        lane = batch.lane
        if self._is_behind(batch):
            self._retry(batch, innocent=True)
        else:
            lane.not_there(batch.order)
            self._retry(batch)

    def give_up(self, batch: ProducerBatch, error: KprotoError) -> None:
        """Fail a batch."""
        batch.error = error
        self._tell(batch, str(error))
        lane = batch.lane
        if batch.sequence >= 0:
            lane.renew = True  # its sequence numbers may be a gap in the log
        if batch in lane.waiting:
            lane.waiting.remove(batch)
        self.end(batch)
        self.given_up(batch, error)

    def _tell(self, batch: ProducerBatch, why: str) -> None:
        """Report the failure, with earlier ones of the same reason."""
        count, intervals = self._lost.pop(why, (0, ReportIntervals()))
        count += len(batch)
        if intervals.is_due(self._core.now):
            self._core.report("undelivered", [batch.partition], reason=f"{count} records: {why}")
            count = 0
        self._lost[why] = count, intervals
        if len(self._lost) > _MOST_REASONS:
            del self._lost[next(iter(self._lost))]

    def end(self, batch: ProducerBatch) -> None:
        """End a batch: free its memory, and call back."""
        for callback in self._records.end(batch):
            self._core.actions.append(CallBack(callback))
        self._core.wake_poll()

    def _sort_out(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None:
        """Separate invalid records: the broker may name them, otherwise halves of the batch are tried."""
        invalid = {record_error.batch_index for record_error in response.record_errors} & set(
            range(len(batch))
        )
        valid = [index for index in range(len(batch)) if index not in invalid]
        if invalid and not valid:
            self.give_up(batch, self._error(batch, response))
        elif invalid:
            parts = self._divide(batch, [valid, *([index] for index in sorted(invalid))])
            for index, part in zip(sorted(invalid), parts[1:], strict=True):
                self.give_up(part, self._error(part, response, index))
        else:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])

    def _divide(self, batch: ProducerBatch, groups: Sequence[Sequence[int]]) -> list[ProducerBatch]:
        """Split a batch into one batch for each group, at its place in the queue.

        Neither the batch nor later ones are in the log, so all of them are renumbered, but not earlier ones.
        In a transaction the parts keep the sequence numbers of the whole.
        """
        lane = batch.lane
        parts, places = divided(batch, groups)
        self._records.divided(batch, parts, places)
        lane.halted = True
        if self._core.options.enable_idempotence and not self._whole:
            lane.not_there(batch.order)
        sequence = batch.sequence
        for part in parts:
            if self._whole:
                part.identity, part.sequence, part.number = (
                    batch.identity,
                    sequence & LAST_SEQUENCE,
                    batch.number,
                )
                sequence += len(part)
            lane.put_back(part)
        lane.numbered += len(parts) - 1
        return parts
