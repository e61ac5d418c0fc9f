"""RemoveRaftVoter (key 81): remove a controller from the metadata quorum (KIP-853)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster
from .raft_voters import voter_fault, voter_key, voters_text


def handle_remove_raft_voter(broker: Broker, call: Call) -> Result:
    """Return the error for the request: no voter can be removed (RemoveVoterHandler)."""
    request = call.request
    assert isinstance(request, RemoveRaftVoterRequest)
    key = voter_key(request.voter_id, request.voter_directory_id)
    error, message = voter_fault(broker, request, "Remove") or (
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {key} from the set of voters {voters_text(broker)}",
    )
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=message)


def refuse(request: RemoveRaftVoterRequest, error: ErrorCode, version: int) -> RemoveRaftVoterResponse:
    """Refuse the whole request."""
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=error, error_message=AUTHORIZATION_FAILED)


API = Api(
    request=RemoveRaftVoterRequest,
    handle=handle_remove_raft_voter,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
