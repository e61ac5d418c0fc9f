"""InitProducerId (key 22): an id for an idempotent producer. Transactional ids are refused."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..broker import Broker
from ..call import Call, Result


def init_producer_id(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is not None:
        # FindCoordinator has told it the reason in words before.
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1
        )
    producer_id = broker.cluster.next_producer_id
    broker.cluster.next_producer_id += 1
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)
