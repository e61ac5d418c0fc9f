"""SaslHandshake (17), SaslAuthenticate (36), and SCRAM's credentials (50, 51): see `security.door`."""

from __future__ import annotations

from collections import Counter

from ...error_codes import ErrorCode
from ...messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...security.exchange import Accepted, Refused
from ...security.scram import LEAST_ITERATIONS, credential
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, CloseConnection, RespondThenClose, Result
from ..security.authenticator import SaslState
from ..security.users import MOST_ITERATIONS, NUMBERS


def sasl_handshake(broker: Broker, call: Call) -> Result:
    """Agree on a mechanism; a second one only where sessions end."""
    request = call.envelope.request
    assert isinstance(request, SaslHandshakeRequest)
    authenticator = broker.connections[call.conn].authenticator
    if authenticator is None or not authenticator.may_begin(call.now):
        no = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        return (
            no
            if authenticator is None or authenticator.state is not SaslState.AUTHENTICATE
            else misplaced(broker, call, no)
        )
    renews = authenticator.state is SaslState.COMPLETE
    if not authenticator.choose(request.mechanism, call.random_id.hex, call.now, raw=call.version == 0):
        answer = SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(authenticator.mechanisms)
        )
        why = f"a mechanism that is not enabled: {request.mechanism[:50]!r}"
        return CloseConnection(why) if renews else RespondThenClose(answer, why, call.now)
    return SaslHandshakeResponse(error_code=0, mechanisms=list(authenticator.mechanisms))


def misplaced(broker: Broker, call: Call, answer: Message) -> RespondThenClose:
    """What is asked in the middle of a login ends it."""
    delay = broker.settings.connection_failed_authentication_delay_ms
    return RespondThenClose(answer, "a request in the middle of a login", call.now + delay)


def sasl_authenticate(broker: Broker, call: Call) -> Result:
    """A message of the mechanism."""
    request = call.envelope.request
    assert isinstance(request, SaslAuthenticateRequest)
    authenticator = broker.connections[call.conn].authenticator
    if authenticator is None or authenticator.server is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    step = authenticator.take(bytes(request.auth_bytes), call.now, broker.cluster.wall_clock_offset)
    if isinstance(step, Refused):
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=step.told, auth_bytes=b""
        )
        delay = broker.settings.connection_failed_authentication_delay_ms
        return RespondThenClose(answer, f"failed authentication: {step.why}", call.now + delay)
    session = authenticator.session_ms(call.now) if isinstance(step, Accepted) else 0
    return SaslAuthenticateResponse(
        error_code=0, error_message="", auth_bytes=step.data, session_lifetime_ms=session
    )


def describe_scram(broker: Broker, call: Call) -> Result:
    """Which users have credentials for SCRAM, and with how many iterations."""
    request = call.envelope.request
    assert isinstance(request, DescribeUserScramCredentialsRequest)
    asked = [user.name for user in request.users or ()] or broker.users.known()
    times = Counter(asked)

    def described(name: str) -> DescribeUserScramCredentialsResult:
        infos = [
            CredentialInfo(mechanism=number, iterations=found.iterations)
            for number, mechanism in NUMBERS.items()
            if (found := broker.users.credential(mechanism, name)) is not None
        ]
        code, why = ErrorCode.NONE, None
        if times[name] > 1:
            code, why = (
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice: {name}",
            )
        elif not infos:
            code = ErrorCode.RESOURCE_NOT_FOUND
            why = f"Attempt to describe a user credential that does not exist: {name}"
        infos = infos if code is ErrorCode.NONE else []
        return DescribeUserScramCredentialsResult(
            user=name, error_code=code, error_message=why, credential_infos=infos
        )

    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        results=[described(name) for name in dict.fromkeys(asked)],
    )


def alter_scram(broker: Broker, call: Call) -> Result:
    """Set and take away credentials for SCRAM; passwords don't travel, salted ones do (KIP-554)."""
    request = call.envelope.request
    assert isinstance(request, AlterUserScramCredentialsRequest)
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    refused: dict[str, tuple[ErrorCode, str]] = {}
    seen: set[str] = set()
    for change in changes:
        if change.name in refused:
            continue
        if change.name in seen:
            twice = "A user credential cannot be altered twice in the same request"
            refused[change.name] = ErrorCode.DUPLICATE_RESOURCE, twice
        elif (why := _refusal(broker, change)) is not None:
            refused[change.name] = why
        seen.add(change.name)
    for change in request.upsertions:
        if change.name not in refused and not change.salted_password:
            refused[change.name] = ErrorCode.UNKNOWN_SERVER_ERROR, "Empty key"  # Java makes no HMAC with that
    for change in changes:
        if change.name in refused:
            continue
        mechanism = NUMBERS[change.mechanism]
        made = None
        if isinstance(change, ScramCredentialUpsertion):
            password, salt = bytes(change.salted_password), bytes(change.salt)
            made = credential(mechanism, password, salt, change.iterations)
        broker.users.alter(mechanism, change.name, made)
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=refused[name][0] if name in refused else 0,
                error_message=refused[name][1] if name in refused else None,
            )
            for name in dict.fromkeys(change.name for change in changes)
        ],
    )


def _refusal(
    broker: Broker, change: ScramCredentialDeletion | ScramCredentialUpsertion
) -> tuple[ErrorCode, str] | None:
    """Why this can't be done; None when it can."""
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
