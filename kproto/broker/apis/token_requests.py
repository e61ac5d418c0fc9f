"""Helpers for the delegation token APIs: the check of the caller, and the text form of principals."""

from __future__ import annotations

from typing import Any, Final

from ...error_codes import ErrorCode
from ..call import Call
from ..security.authenticator import ANONYMOUS
from .authorization import Access, Authorization

# The timestamp in a CreateDelegationToken response that creates no token, and in a response that denies the
# caller a renewal or expiration.
NO_TIME: Final = -1


def caller_error(call: Call) -> ErrorCode:
    """Return the error if the caller may not send requests about tokens; otherwise NONE.

    Anonymous callers, and callers that have authenticated with a delegation token, may not send these
    requests (KafkaApis.allowTokenRequests).
    """
    if call.principal == ANONYMOUS or call.by_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.NONE


def principal_of(principal_type: str, name: str) -> str:
    """Return a principal in the form TYPE:NAME."""
    return f"{principal_type}:{name}"


def split_principal(principal: str) -> tuple[str, str]:
    """Split a principal of the form TYPE:NAME into its type and its name."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name


def _unrestricted(access: Access, request: Any) -> Call:
    return access.call


# Requires no ACL: the handler checks that the caller is the owner or a renewer of the token.
UNRESTRICTED: Final = Authorization((), _unrestricted)
