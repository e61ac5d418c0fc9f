"""AddRaftVoter (key 80): add a controller to the metadata quorum (KIP-853).

A new voter must first replicate the metadata log, and this broker has no metadata log. So a request that
passes Kafka's checks fails as if the new voter were unreachable.
"""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster
from .raft_voters import Fault, controller, voter_fault, voter_key, voters_text

# The name of the controller listener in Kafka's default configuration.
_LISTENER: Final = "CONTROLLER"


def handle_add_raft_voter(broker: Broker, call: Call) -> Result:
    """Return the error for the request: no voter can be added.

    Follows KafkaRaftClient.handleAddVoterRequest and AddVoterHandler.
    """
    request = call.request
    assert isinstance(request, AddRaftVoterRequest)
    error, message = _add_voter_fault(broker, request)
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=message)


def _add_voter_fault(broker: Broker, request: AddRaftVoterRequest) -> Fault:
    """Return the error of the first failed check, or REQUEST_TIMED_OUT if all checks succeed.

    REQUEST_TIMED_OUT is Kafka's error for an unreachable voter. The embedded broker does not connect to the
    new voter, so the voter always counts as unreachable.
    """
    if (fault := voter_fault(broker, request, "Add")) is not None:
        return fault
    if _LISTENER not in (listener.name for listener in request.listeners):
        message = f"Add voter request didn't include the endpoint for the default listener {_LISTENER}"
        return ErrorCode.INVALID_REQUEST, message
    key = voter_key(request.voter_id, request.voter_directory_id)
    if request.voter_id == controller(broker):
        message = f"The voter id for {key} is already part of the set of voters {voters_text(broker)}."
        return ErrorCode.DUPLICATE_VOTER, message
    return ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests"


def refuse(request: AddRaftVoterRequest, error: ErrorCode, version: int) -> AddRaftVoterResponse:
    """Refuse the whole request."""
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=AUTHORIZATION_FAILED)


API = Api(
    request=AddRaftVoterRequest,
    handle=handle_add_raft_voter,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
