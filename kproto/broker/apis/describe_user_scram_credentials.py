"""DescribeUserScramCredentials (key 50): SCRAM mechanisms and iterations of users."""

from __future__ import annotations

from collections import Counter

from ...error_codes import ErrorCode
from ...messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..security.users import NUMBERS
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster


def handle_describe_user_scram_credentials(broker: Broker, call: Call) -> Result:
    """Describe the credentials of the requested users, or of all users."""
    request = call.request
    assert isinstance(request, DescribeUserScramCredentialsRequest)
    names = [user.name for user in request.users or ()] or broker.users.known()
    counts = Counter(names)
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        results=[_describe_user(broker, name, counts[name]) for name in dict.fromkeys(names)],
    )


def _describe_user(broker: Broker, name: str, count: int) -> DescribeUserScramCredentialsResult:
    """Return the result of a user; `count` is the number of times that the request names the user."""
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice: {name}"
        return _refuse_user(name, ErrorCode.DUPLICATE_RESOURCE, message)
    infos = [
        CredentialInfo(mechanism=number, iterations=credential.iterations)
        for number, mechanism in NUMBERS.items()
        if (credential := broker.users.credential(mechanism, name)) is not None
    ]
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _refuse_user(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(
        user=name, error_code=0, error_message=None, credential_infos=infos
    )


def _refuse_user(name: str, error: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=error, error_message=message, credential_infos=[]
    )


def refuse(
    request: DescribeUserScramCredentialsRequest, error: ErrorCode, version: int
) -> DescribeUserScramCredentialsResponse:
    """Return a response with a top-level error.

    As in Kafka, the response also contains one result for each requested user, but without the user's name.
    """
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=error,
        error_message=AUTHORIZATION_FAILED,
        results=[_refuse_user("", error, AUTHORIZATION_FAILED) for _ in request.users or ()],
    )


API = Api(
    request=DescribeUserScramCredentialsRequest,
    handle=handle_describe_user_scram_credentials,
    authorization=on_cluster(Operation.DESCRIBE),
    refuse=refuse,
    divided=("results",),
)
