"""The producer id of a producer without transactions, and the sequence numbers of batches (KIP-98).

Rules:

* A batch that may be in the log keeps its sequence number through every retry. Only a batch that is certainly
  not in the log is renumbered.

* Each partition has its own sequence numbers and epoch, because brokers store them per partition.

* If a failed batch may be in the log, the partition's batches without a sequence number get the next epoch.
  If the epoch of the partition is the highest one, a new producer id is requested.
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.errors import KprotoError, UnsupportedVersion
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ...errors import broker_error
from ...producer_options import ProducerOptions
from ..core import ClientCore
from ..error_actions import INIT_PRODUCER_ID, ErrorAction, action_for
from ..network.call import Call
from .batches import LAST_EPOCH, PartitionQueue, ProducerBatch
from .transaction_requests import ProducerIdAndEpoch


class SequenceNumbers:
    """Requests a producer id, and assigns sequence numbers.

    `on_rejected(error)` is called if the request for the producer id fails with an error that is not retried.
    """

    def __init__(self, core: ClientCore[ProducerOptions], on_rejected: Callable[[KprotoError], None]) -> None:
        self._core = core
        self._on_rejected = on_rejected
        # The producer id, and the first epoch that each partition uses with it.
        self._identity: ProducerIdAndEpoch | None = None
        self._call: Call | None = None  # The InitProducerId request in flight.
        self._request_at = 0  # The earliest time (ms) of the next request for a producer id.
        self._failures = 0

    @property
    def lacks_producer_id(self) -> bool:
        """Whether a producer id is needed and has not been received yet."""
        return self._core.options.enable_idempotence and self._identity is None

    def due(self) -> int | None:
        """Return when (ms) to request a producer id; None if no request is needed, or one is in flight."""
        return self._request_at if self.lacks_producer_id and self._call is None else None

    def ensure_ready(self) -> bool:
        """Return whether batches can get sequence numbers. If there is no producer id, request one."""
        core = self._core
        if self.lacks_producer_id and self._call is None and self._request_at <= core.now:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self._call = core.send(request, self._on_producer_id)
        return not self.lacks_producer_id

    def _on_producer_id(self, call: Call) -> None:
        """Handle the end of the InitProducerId request.

        If the error can be retried, `ensure_ready` sends the request again after a backoff.
        """
        core = self._core
        self._call = None
        self._request_at = core.now + core.backoff.after(self._failures)
        self._failures += 1
        error = call.error
        if isinstance(call.response, InitProducerIdResponse):
            code = call.response.error_code
            if not code and call.response.producer_id < 0:
                return  # The response has no producer id: retry.
            if not code:
                self._identity = ProducerIdAndEpoch(call.response.producer_id, call.response.producer_epoch)
                self._failures = 0
                return
            error = broker_error(code, "InitProducerId")
            if action_for(INIT_PRODUCER_ID, code) is not ErrorAction.RAISE:
                return
        elif not isinstance(error, UnsupportedVersion):
            return
        assert error is not None
        self._on_rejected(error)

    def max_produce_version(self, max_version: int | None) -> int | None:
        """Return the highest version of Produce to use; None for no limit.

        `max_version` is the highest version that the topic ids of the request allow. For transactions, see
        `TransactionManager.max_produce_version`.
        """
        return max_version

    def assign_sequence(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Assign a sequence number to the batch. Return False if a producer id must be requested first.

        If the queue has no producer id or needs a new epoch, it first gets the client's current producer id
        and epoch. If it already had this producer id, its own epoch is incremented instead.
        """
        if queue.identity is None or queue.needs_new_epoch:
            identity = self._identity
            if identity is None:
                return False
            if queue.identity is not None and queue.identity.producer_id == identity.producer_id:
                if queue.identity.epoch >= LAST_EPOCH:
                    self._identity = None  # This producer id has reached the highest epoch.
                    return False
                identity = ProducerIdAndEpoch(identity.producer_id, queue.identity.epoch + 1)
            queue.identity = identity
            queue.next_sequence = 0
            queue.needs_new_epoch = queue.epoch_accepted = False
        queue.assign_sequence(batch)
        return True
