"""AlterUserScramCredentials (key 51): set or delete SCRAM credentials (KIP-554).

Clients send salted passwords, never the passwords themselves.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...security.scram import LEAST_ITERATIONS, credential
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..security.users import MOST_ITERATIONS, NUMBERS
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

Change = ScramCredentialDeletion | ScramCredentialUpsertion
Fault = tuple[ErrorCode, str]


def handle_alter_user_scram_credentials(broker: Broker, call: Call) -> Result:
    """Apply the changes for each user. If one is invalid, all changes for the same user are rejected."""
    request = call.request
    assert isinstance(request, AlterUserScramCredentialsRequest)
    faults = _faults_by_user(broker, request)
    for change in _all_changes(request):
        if change.name in faults:
            continue
        mechanism = NUMBERS[change.mechanism]
        new_credential = None  # Deletes the credential.
        if isinstance(change, ScramCredentialUpsertion):
            password, salt = bytes(change.salted_password), bytes(change.salt)
            new_credential = credential(mechanism, password, salt, change.iterations)
        broker.users.alter(mechanism, change.name, new_credential)
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[_user_result(name, *faults.get(name, (0, None))) for name in _user_names(request)],
    )


def _all_changes(request: AlterUserScramCredentialsRequest) -> list[Change]:
    return [*request.deletions, *request.upsertions]


def _user_names(request: AlterUserScramCredentialsRequest) -> list[str]:
    return list(dict.fromkeys(change.name for change in _all_changes(request)))


def _user_result(name: str, error: int, message: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=error, error_message=message)


def _faults_by_user(broker: Broker, request: AlterUserScramCredentialsRequest) -> dict[str, Fault]:
    """Return the error and message of each user's first invalid change. Other users are omitted.

    As in Kafka, salted passwords are checked last, and only for users without another error.
    """
    faults: dict[str, Fault] = {}
    checked: set[str] = set()
    for change in _all_changes(request):
        if change.name in faults:
            continue
        if change.name in checked:
            message = "A user credential cannot be altered twice in the same request"
            faults[change.name] = ErrorCode.DUPLICATE_RESOURCE, message
        elif (fault := _change_fault(broker, change)) is not None:
            faults[change.name] = fault
        checked.add(change.name)
    for upsertion in request.upsertions:
        if upsertion.name not in faults and not upsertion.salted_password:
            # Kafka passes the salted password to Java's SecretKeySpec, which rejects an empty key.
            faults[upsertion.name] = ErrorCode.UNKNOWN_SERVER_ERROR, "Empty key"
    return faults


def _change_fault(broker: Broker, change: Change) -> Fault | None:
    """Return the error and Kafka's message for an invalid change; None if the change is valid."""
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in NUMBERS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if not isinstance(change, ScramCredentialUpsertion):
        if broker.users.credential(NUMBERS[change.mechanism], change.name) is None:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    elif change.iterations < LEAST_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    elif change.iterations > MOST_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None


def refuse(
    request: AlterUserScramCredentialsRequest, error: ErrorCode, version: int
) -> AlterUserScramCredentialsResponse:
    """Return a response with an error for every user of the request."""
    results = [_user_result(name, error, AUTHORIZATION_FAILED) for name in _user_names(request)]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


API = Api(
    request=AlterUserScramCredentialsRequest,
    handle=handle_alter_user_scram_credentials,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
