"""The producer's id, and the numbers of its batches (KIP-98).

Rules that hold here:

* A batch that may be in the log keeps its number through every retry; only what surely is not there is
  numbered anew.
* Each lane counts by itself, and has epochs of its own: brokers keep them per partition. When a batch's fate
  is unknown, what has no number yet goes out under the next epoch. An id whose epochs are used up is given up
  for another one.
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.errors import KprotoError, UnsupportedVersion
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ...errors import broker_error
from ...options import ProducerOptions
from ..core import ClientCore
from ..error_actions import INIT_PRODUCER_ID, ErrorAction, action_for
from ..network.connection import Call
from ..requests import ProducerIdAndEpoch
from .batches import LAST_EPOCH, PartitionQueue, ProducerBatch


class SequenceNumbers:
    """Asks for an id when somebody needs one; `refused` is told when nobody will ever give one."""

    def __init__(self, core: ClientCore[ProducerOptions], refused: Callable[[KprotoError], None]) -> None:
        self._core = core
        self._refused = refused
        self._identity: ProducerIdAndEpoch | None = None
        self._call: Call | None = None
        self._at = 0
        self._fails = 0

    @property
    def missing(self) -> bool:
        """Nothing can be sent, as no broker has given this producer an id yet."""
        return self._core.options.enable_idempotence and self._identity is None

    def due(self) -> int | None:
        """When to ask for an id, if one is needed."""
        return self._at if self.missing and self._call is None else None

    def found(self) -> bool:
        """Whether batches can be numbered; asks for an id where that is missing."""
        core = self._core
        if self.missing and self._call is None and self._at <= core.now:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self._call = core.send(request, self._named)
        return not self.missing

    def _named(self, call: Call) -> None:
        core = self._core
        self._call = None
        self._at = core.now + core.backoff.after(self._fails)
        self._fails += 1
        error = call.error
        if isinstance(call.response, InitProducerIdResponse):
            code = call.response.error_code
            if not code and call.response.producer_id < 0:
                return  # no answer at all
            if not code:
                self._identity = ProducerIdAndEpoch(call.response.producer_id, call.response.producer_epoch)
                self._fails = 0
                return
            error = broker_error(code, "InitProducerId")
            if action_for(INIT_PRODUCER_ID, code) is not ErrorAction.RAISE:
                return
        elif not isinstance(error, UnsupportedVersion):
            return
        assert error is not None
        self._refused(error)

    def most(self, most: int | None) -> int | None:
        """The highest version of Produce: any."""
        return most

    def number(self, lane: PartitionQueue, batch: ProducerBatch) -> bool:
        """Gives the batch its sequence number, and the lane a new identity if it needs one; False when there
        is none to give."""
        if lane.identity is None or lane.renew:
            identity = self._identity
            if identity is None:
                return False
            if lane.identity is not None and lane.identity.producer_id == identity.producer_id:
                if lane.identity.epoch >= LAST_EPOCH:
                    self._identity = None  # all epochs of this id are used up here
                    return False
                identity = ProducerIdAndEpoch(identity.producer_id, lane.identity.epoch + 1)
            lane.identity = identity
            lane.next_sequence = 0
            lane.renew = lane.known = False
        lane.number(batch)
        return True
