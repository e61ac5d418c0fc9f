"""DescribeUserScramCredentials (key 50): list the SCRAM mechanisms of users (KIP-554)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int8, Int16, Int32, String


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None


class UserName(Struct):
    name: String


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32
