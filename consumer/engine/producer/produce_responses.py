"""Handles Produce responses: a batch succeeds, is sent again, split or renumbered, or fails.

Rules (Java's Sender and TransactionManager):

* After a failure, a queue waits until none of its batches is in flight. Then all its batches are sent again
  in their order.

* A batch that is too large, or that contains invalid records, is split. The parts replace it in the queue.

* If a failed batch may be in the log, batches without a sequence number get the next epoch, and are sent
  after all numbered batches.

* If a batch is certainly not in the log, this batch and all later ones are renumbered, as in Java since
  KIP-360.

* For each reason, the first failed batch is reported immediately. Later failures for the same reason are
  counted, and their number is reported at increasing intervals.

* Independently of the reports, each delivery, `flush()` or `close()` that waits for a failed record raises
  the record's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kproto.error_codes import ErrorCode, describe
from kproto.errors import AuthenticationFailed, BrokerError, EncodeError, KprotoError, UnsupportedVersion
from kproto.messages.produce import PartitionProduceResponse

from ...errors import broker_error
from ...producer_options import ProducerOptions
from ..core import ClientCore
from ..error_actions import PRODUCE, ErrorAction, action_for
from ..events import CallBack
from ..metadata.updater import MetadataUpdater
from ..timeouts import ReportIntervals
from .accumulator import RecordAccumulator
from .batches import LAST_SEQUENCE, ProducerBatch, split_batch
from .sensors import ProducerSensors

# Maximum number of failure reasons for which failed records are counted.
_MAX_REASONS = 64


class ProduceResponses:
    """Handles the responses to sent batches. The caller then reschedules the queues of these batches."""

    def __init__(
        self,
        core: ClientCore[ProducerOptions],
        records: RecordAccumulator,
        metadata: MetadataUpdater,
        sensors: ProducerSensors | None = None,
    ) -> None:
        self._core = core
        self._sensors = sensors or ProducerSensors()
        self._records = records
        self._metadata = metadata
        # Called for each batch that fails.
        self.on_batch_failed: Callable[[ProducerBatch, KprotoError], None] = lambda batch, error: None
        # Failure reason -> (number of records that failed since the last report, times of the reports).
        self._failures: dict[str, tuple[int, ReportIntervals]] = {}

    def on_no_response(self, batch: ProducerBatch, error: KprotoError) -> None:
        """Handle a batch whose request got no response: fail or retry it, depending on `error`."""
        batch.queue.in_flight.remove(batch)
        if batch.done:
            return
        batch.why = str(error)
        if isinstance(error, UnsupportedVersion | EncodeError | AuthenticationFailed):
            self.fail_batch(batch, error)
        else:
            self._core.view.forget_leader(batch.partition)
            self._retry(batch)

    def on_response(self, batch: ProducerBatch, response: PartitionProduceResponse | None) -> None:
        """Handle the response for one batch: complete, retry, split, renumber or fail the batch.

        `response` is the entry of the batch's partition in the Produce response, or None if the entry is
        missing.
        """
        queue = batch.queue
        if response is None:
            queue.in_flight.remove(batch)
            if not batch.done:
                batch.why = "the broker's response does not contain the partition"
                self._retry(batch)
            return
        action = action_for(PRODUCE, response.error_code)
        if action is ErrorAction.USE:
            self.succeed(batch, response.base_offset, response.log_append_time_ms)
            return
        queue.in_flight.remove(batch)
        if batch.done:
            return
        batch.why = f"the broker answers {describe(response.error_code)}"
        if response.error_message:
            batch.why += f": {response.error_message}"
        if action is ErrorAction.SPLIT_BATCH and len(batch) > 1:
            self._split_into_halves(batch)
        elif action is ErrorAction.DROP_INVALID_RECORDS and len(batch) > 1 and not self._transactional:
            self._separate_invalid(batch, response)
        elif (
            action is ErrorAction.RENUMBER
            and self._core.options.enable_idempotence
            and self._may_renumber(batch)
        ):
            if response.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                queue.out_of_order.append(batch)
            self._on_unexpected_sequence(batch)
        elif response.error_code == ErrorCode.UNKNOWN_PRODUCER_ID and (
            -1 < queue.last_offset < response.log_start_offset
        ):
            # The leader has deleted all batches of this producer, and with them its sequence numbers. The
            # batches are sent again with numbers that begin with 0 (TransactionManager.canRetry of Java).
            queue.identity = None
            queue.mark_not_in_log(batch.order)
            self._retry(batch)
        elif action is ErrorAction.RETRY or action is ErrorAction.REFRESH_METADATA:
            if action is ErrorAction.REFRESH_METADATA:
                self._on_leader_changed(batch, response)
            self._retry(batch)
        else:
            if response.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
                # The leader does not know the producer id, so it accepts the sequence number 0 (Java's
                # TransactionManager.handleFailedBatch). The next transaction begins with this number, even
                # if it has the same epoch because the coordinator is older than Kafka 2.5.
                queue.end_of_log, queue.epoch_accepted = 0, False
            self.fail_batch(batch, self._batch_error(batch, response))

    def _on_leader_changed(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None:
        """Use the new leader if the response names a known broker (KIP-951), else look it up."""
        view = self._core.view
        view.forget_leader(batch.partition)
        leader = response.current_leader
        if leader.leader_id in view.brokers and leader.leader_epoch >= 0:
            view.set_leader(batch.partition, leader.leader_id, leader.leader_epoch)
        else:
            self._metadata.look_up(batch.partition.topic)
        if response.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # The topic may have been re-created. If so, its new log contains no batch of this epoch yet.
            batch.queue.epoch_accepted = False

    def _batch_error(
        self, batch: ProducerBatch, response: PartitionProduceResponse, index: int = -1
    ) -> BrokerError:
        """Return the error to raise for a batch, or for its record with this index."""
        message = response.error_message or ""
        if self._transactional and response.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            message = (
                message
                or "fenced by a newer producer, or transaction_timeout_ms has passed; abort() shows which"
            )
        for record_error in response.record_errors:
            if index in (-1, record_error.batch_index):
                reason = record_error.batch_index_error_message or ""
                message = f"{message} record {record_error.batch_index}: {reason}".strip()
                break
        detail = f"{batch.partition}, {len(batch)} records" + (f": {message}" if message else "")
        return broker_error(response.error_code, "Produce", detail)

    def succeed(self, batch: ProducerBatch, offset: int | None, append_time: int) -> None:
        """End a batch successfully. Its offset stays unknown if `offset` is None or negative.

        If the broker has rejected the sequence numbers of earlier batches, this success may show that the
        log contains these batches. The earlier batches then end successfully, too.
        """
        queue = batch.queue
        queue.in_flight.remove(batch)
        if batch.identity == queue.identity:
            queue.epoch_accepted = True
            queue.end_of_log = (batch.sequence + len(batch)) & LAST_SEQUENCE
        if queue.out_of_order:
            self._end_earlier_in_log(batch)
        if batch.done:
            return
        batch.base_offset = offset if offset is not None and offset >= 0 else None
        if batch.base_offset is not None:
            queue.last_offset = batch.base_offset + len(batch) - 1
        batch.log_append_time = append_time if append_time >= 0 else None
        self.end_batch(batch)

    def _end_earlier_in_log(self, later: ProducerBatch) -> None:
        """End the rejected batches that are in the log, because the broker has appended `later` after them.

        They are earlier batches with the error OUT_OF_ORDER_SEQUENCE_NUMBER (`queue.out_of_order`).

        A broker appends a producer's batches in order. So a log that contains `later` also contains the
        batches before it.

        A restarted broker remembers only a producer's last batch, because Kafka's snapshots of the producer
        state contain no earlier batches. If earlier batches are sent again, the broker rejects them, although
        they are in its log.

        `later` was already in flight when the earlier batches were rejected. So the broker that rejected them
        is the broker that has appended `later`. The offsets of the earlier batches stay unknown.
        """
        queue = later.queue
        in_log = [
            candidate
            for candidate in queue.out_of_order
            if candidate.order < later.order and candidate.identity == later.identity
        ]
        if not in_log:
            return
        queue.renumber_from = None
        for batch in in_log:
            queue.out_of_order.remove(batch)
            if not batch.done:
                queue.waiting.remove(batch)
                self.end_batch(batch)

    def _retry(self, batch: ProducerBatch, *, is_own_failure: bool = True) -> None:
        """Put the batch back into its queue. The queue sends no batch until none of its batches is in flight.

        If `is_own_failure` is false, the batch failed only because of an earlier batch. It is then retried
        without a report and without a backoff.
        """
        self._sensors.record_retry(batch, self._core.now)
        queue = batch.queue
        queue.halted = True
        if is_own_failure:
            repeated = batch.failures > 0
            self._core.report_failure("Produce", batch.why, batch.partition, repeated=repeated)
            batch.retry_at = self._core.now + self._core.backoff.after(batch.failures)
            batch.failures += 1
        queue.reinsert(batch)

    @property
    def _transactional(self) -> bool:
        """Whether the producer is transactional.

        In a transaction all batches succeed or fail together, so no batch is renumbered to take the place of
        a failed one.
        """
        return self._core.options.transactional_id is not None

    def _may_renumber(self, batch: ProducerBatch) -> bool:
        """Return whether a batch with a rejected sequence number may be retried or renumbered."""
        return not self._transactional or self._has_earlier_batch(batch)

    @staticmethod
    def _has_earlier_batch(batch: ProducerBatch) -> bool:
        """Return whether an earlier batch of the queue has neither succeeded nor failed yet."""
        queue = batch.queue
        return any(batch_before.order < batch.order for batch_before in (*queue.in_flight, *queue.waiting))

    def _on_unexpected_sequence(self, batch: ProducerBatch) -> None:
        """Handle a sequence number that the broker did not expect.

        While an earlier batch is waiting or in flight, this batch is sent again after it. If all earlier
        batches have ended, the numbers that the log lacks cannot be sent again, and this batch is renumbered.
        """
        queue = batch.queue
        if self._has_earlier_batch(batch):
            self._retry(batch, is_own_failure=False)
        else:
            queue.mark_not_in_log(batch.order)
            self._retry(batch)

    def fail_batch(self, batch: ProducerBatch, error: KprotoError) -> None:
        """Fail a batch, which may be waiting or in flight, and report its records as undelivered."""
        batch.error = error
        self._sensors.record_failure(batch, self._core.now)
        self._report_undelivered(batch, str(error))
        queue = batch.queue
        if batch.sequence >= 0:
            # The log may lack this batch's sequence numbers. If so, the broker would reject later numbers, so
            # later batches need a new epoch.
            queue.needs_new_epoch = True
        if batch in queue.waiting:
            queue.waiting.remove(batch)
        self.end_batch(batch)
        self.on_batch_failed(batch, error)

    def _report_undelivered(self, batch: ProducerBatch, why: str) -> None:
        """Count the records that failed for `why`, and report the count when a report is due."""
        count, intervals = self._failures.pop(why, (0, ReportIntervals()))
        count += len(batch)
        if intervals.advance_if_due(self._core.now):
            self._core.report("undelivered", [batch.partition], reason=f"{count} records: {why}")
            count = 0
        self._failures[why] = count, intervals
        if len(self._failures) > _MAX_REASONS:
            # Forget the reason whose last failure is the oldest.
            del self._failures[next(iter(self._failures))]

    def end_batch(self, batch: ProducerBatch) -> None:
        """End a batch: free its memory, and schedule its callbacks."""
        for callback in self._records.end_batch(batch):
            self._core.actions.append(CallBack(callback))
        self._core.wake_poll()

    def _separate_invalid(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None:
        """Split a rejected batch: invalid records fail, and the valid ones form a new batch.

        Each invalid record fails in a batch of its own. If the response names no invalid record, the batch is
        split into halves instead.
        """
        invalid = {record_error.batch_index for record_error in response.record_errors} & set(
            range(len(batch))
        )
        valid = [index for index in range(len(batch)) if index not in invalid]
        if invalid and not valid:
            self.fail_batch(batch, self._batch_error(batch, response))
        elif invalid:
            parts = self._split(batch, [valid, *([index] for index in sorted(invalid))])
            for index, part in zip(sorted(invalid), parts[1:], strict=True):
                self.fail_batch(part, self._batch_error(part, response, index))
        else:
            self._split_into_halves(batch)

    def _split_into_halves(self, batch: ProducerBatch) -> None:
        half = len(batch) // 2
        self._split(batch, [range(half), range(half, len(batch))])

    def _split(self, batch: ProducerBatch, groups: Sequence[Sequence[int]]) -> list[ProducerBatch]:
        """Replace a batch in its queue by one batch for each group of record indexes.

        None of the parts is in the log, so the parts and the partition's later batches get new sequence
        numbers. Earlier batches keep theirs.

        In a transaction nothing is renumbered: the parts share the sequence numbers of the split batch.
        """
        self._sensors.record_split(self._core.now)
        queue = batch.queue
        parts, locations = split_batch(batch, groups)
        self._records.replace_split_batch(batch, parts, locations)
        queue.halted = True
        if self._core.options.enable_idempotence and not self._transactional:
            queue.mark_not_in_log(batch.order)
        sequence = batch.sequence
        for part in parts:
            if self._transactional:
                part.identity, part.sequence, part.number = (
                    batch.identity,
                    sequence & LAST_SEQUENCE,
                    batch.number,
                )
                sequence += len(part)
            queue.reinsert(part)
        queue.numbered += len(parts) - 1
        return parts
