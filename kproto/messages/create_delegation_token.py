"""CreateDelegationToken (key 38): create a delegation token (KIP-48).

A client can authenticate with the token instead of with its own credentials.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bytes, Int16, Int32, Int64, String


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    # The owner of the token. If its name is empty or null, the requesting principal is the owner (KIP-373).
    owner_principal_type: String | None = field("3+", default="")
    owner_principal_name: String | None = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreatableRenewers(Struct):
    principal_type: String
    principal_name: String


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
