"""Who may change who may: ACLs and passwords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ....messages.create_acls import AclCreationResult, CreateAclsResponse
from ....messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from ....messages.describe_acls import DescribeAclsResponse
from ....messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ....wire.message import Message
from ..authorization import CLUSTER_FAILED, SAID, Gated, May, Rule


def on_cluster(operation: int, refuse: Callable[[Any], Message]) -> Rule:
    def rule(may: May, request: Any) -> Gated:
        return may.call if may.cluster(operation) else refuse(request)

    return rule


def describe_acls(request: Any) -> Message:
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=CLUSTER_FAILED, error_message=SAID, resources=[]
    )


def create_acls(request: Any) -> Message:
    results = [AclCreationResult(error_code=CLUSTER_FAILED, error_message=SAID) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def delete_acls(request: Any) -> Message:
    results = [
        DeleteAclsFilterResult(error_code=CLUSTER_FAILED, error_message=SAID, matching_acls=[])
        for _ in request.filters
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def describe_scram(request: Any) -> Message:
    # Kafka names nobody in these.
    nobody = DescribeUserScramCredentialsResult(
        user="", error_code=CLUSTER_FAILED, error_message=SAID, credential_infos=[]
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=CLUSTER_FAILED,
        error_message=SAID,
        results=[nobody for _ in request.users or ()],
    )


def alter_scram(request: Any) -> Message:
    names = dict.fromkeys(change.name for change in [*request.deletions, *request.upsertions])
    results = [
        AlterUserScramCredentialsResult(user=name, error_code=CLUSTER_FAILED, error_message=SAID)
        for name in names
    ]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
