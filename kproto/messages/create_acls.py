"""CreateAcls (key 30): create access control entries."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int8, Int16, Int32, String


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation]


class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[AclCreationResult]


class AclCreationResult(Struct):
    error_code: Int16
    error_message: String | None
