"""ACLs in the admin API: create, describe and delete, on the embedded broker and with prepared responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from consumer import AclBinding, AclBindingFilter, Admin
from consumer.engine.admin import acls as plans
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, PartialFailure
from kproto.messages.create_acls import AclCreationResult, CreateAclsResponse
from kproto.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from tests.consumer.engine.admin.stage import clock, play, view_of

READ = AclBinding("topic", "t", "User:alice", "read")
PREFIX = AclBinding("group", "team-", "User:bob", "all", "deny", "10.0.0.1", "prefixed")


@pytest.fixture
def server() -> Iterator[Server]:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with running(topics={"t": 1}, settings=settings) as server:
        yield server


def test_created_acls_are_described_in_order(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_acls([READ, PREFIX])
        admin.create_acls([READ])
        assert admin.describe_acls() == [PREFIX, READ]
        assert admin.describe_acls(AclBindingFilter(principal="User:alice")) == [READ]
        assert admin.describe_acls(AclBindingFilter("group", "team-7", pattern_type="match")) == [PREFIX]


def test_deleted_acls_are_returned_for_each_filter(server: Server) -> None:
    topics, users = AclBindingFilter("topic"), AclBindingFilter(principal="User:nobody")
    with Admin(server.bootstrap) as admin:
        admin.create_acls([READ, PREFIX])
        assert admin.delete_acls([topics, users]) == {topics: [READ], users: []}
        assert admin.describe_acls() == [PREFIX]


def test_an_invalid_acl_does_not_affect_the_others(server: Server) -> None:
    wrong = AclBinding("topic", "t", "alice", "read")
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="1 of 2 items: CreateAcls: INVALID_REQUEST") as caught:
            admin.create_acls([wrong, READ])
        assert caught.value.failed.keys() == {wrong}
        assert admin.describe_acls() == [READ]


def test_a_broker_without_an_authorizer_rejects_the_call() -> None:
    disabled = pytest.raises(BrokerError, match="SECURITY_DISABLED")
    with running() as server, Admin(server.bootstrap) as admin, disabled:
        admin.describe_acls()


def test_acls_without_a_result_are_sent_again() -> None:
    success = AclCreationResult(error_code=0, error_message=None)
    plan = plans.create_acls(view_of(1), [READ, PREFIX], clock)
    responses = [CreateAclsResponse(throttle_time_ms=0, results=[success]) for _ in range(2)]
    assert play(plan, *responses)[0] == {READ: None, PREFIX: None}


def test_a_filter_fails_with_the_acl_that_was_not_deleted() -> None:
    acl = DeleteAclsMatchingAcl(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        error_message="the log is full",
        resource_type=2,
        resource_name="t",
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    result = DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[acl])
    plan = plans.delete_acls(view_of(1), [AclBindingFilter()], clock)
    with pytest.raises(PartialFailure, match=r"allow read on topic 't' for User:alice .*: the log is full"):
        play(plan, DeleteAclsResponse(throttle_time_ms=0, filter_results=[result]))


@pytest.mark.parametrize(
    "acl",
    [
        AclBinding("topic", "t", "User:a", "any"),
        AclBinding("topic", "t", "User:a", "read", pattern_type="match"),
        AclBinding("topics", "t", "User:a", "read"),
        READ.resource_name,
    ],
)
def test_an_acl_with_a_value_for_filters_is_rejected_before_a_request(acl: Any) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match="AclBinding"):
        admin.create_acls([acl])
