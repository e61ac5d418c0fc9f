"""AddRaftVoter and RemoveRaftVoter: the controller is the only voter, and both requests are rejected."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode as E
from kproto.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kproto.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.broker.stage import Stage

DIRECTORY = UUID(int=7)
LISTENER = Listener(name="CONTROLLER", host="h", port=1)


def change(request: type[Any], **fields: Any) -> tuple[int, str]:
    named: dict[str, Any] = {"cluster_id": None, "voter_id": 77, "voter_directory_id": DIRECTORY}
    if request is AddRaftVoterRequest:
        named |= {"timeout_ms": 1, "listeners": [LISTENER]}
    response = Stage().client().ask(request(**{**named, **fields}))
    return response.error_code, response.error_message


@pytest.mark.parametrize("request_", [AddRaftVoterRequest, RemoveRaftVoterRequest])
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"cluster_id": "x"}, E.INCONSISTENT_CLUSTER_ID, 'The given id "x" doesn\'t match the cluster id'),
        ({"voter_id": -1}, E.INVALID_REQUEST, "voter request didn't include a valid voter"),
        ({"voter_directory_id": NO_ID}, E.INVALID_REQUEST, "voter request didn't include a valid voter"),
    ],
)
def test_a_request_names_the_cluster_and_a_voter(
    request_: type[Any], fields: dict[str, Any], error: E, message: str
) -> None:
    code, text = change(request_, **fields)
    assert code == error
    assert message in text


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"listeners": []}, E.INVALID_REQUEST, "didn't include the endpoint"),
        ({"voter_id": 1}, E.DUPLICATE_VOTER, "already part of the set of voters [ReplicaKey(id=1"),
        ({}, E.REQUEST_TIMED_OUT, "New voter ReplicaKey(id=77"),
        ({"cluster_id": "kproto-embedded-broker"}, E.REQUEST_TIMED_OUT, "not ready"),
    ],
)
def test_no_voter_is_added(fields: dict[str, Any], error: E, message: str) -> None:
    code, text = change(AddRaftVoterRequest, **fields)
    assert code == error
    assert message in text


@pytest.mark.parametrize("voter", [1, 77])
def test_no_voter_is_removed(voter: int) -> None:
    code, text = change(RemoveRaftVoterRequest, voter_id=voter)
    assert code == E.VOTER_NOT_FOUND
    assert f"Cannot remove voter ReplicaKey(id={voter}" in text
