"""Quotas in the admin API: entities, filters, and results for each entity."""

from __future__ import annotations

import pytest

from consumer import Admin, ClientQuotaEntity
from consumer.engine.admin import quotas as plans
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError, PartialFailure
from kproto.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from kproto.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tests.consumer.engine.admin.stage import clock, known, play, request_of

ALICE = ClientQuotaEntity(user="alice")
DEFAULT_USER = ClientQuotaEntity(user="")
DEFAULT_CLIENT_OF_ALICE = ClientQuotaEntity(user="alice", client_id="")


def described(*entries: EntryData) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=list(entries)
    )


def test_a_null_name_is_the_default_entity() -> None:
    entity = [EntityData(entity_type="user", entity_name=None)]
    response = described(EntryData(entity=entity, values=[ValueData(key="producer_byte_rate", value=5.5)]))
    plan = plans.describe_client_quotas(known(), {"user": None}, clock, strict=False)
    assert play(plan, response)[0] == {DEFAULT_USER: {"producer_byte_rate": 5.5}}


def test_a_filter_matches_a_name_the_default_or_any_name() -> None:
    match = {"user": "alice", "client-id": "", "ip": None}
    request = request_of(plans.describe_client_quotas(known(), match, clock, strict=True))
    assert [(entry.entity_type, entry.match_type, entry.match) for entry in request.components] == [
        ("user", 0, "alice"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]
    assert request.strict


def test_a_change_sends_the_default_as_a_null_name_and_none_as_a_removal() -> None:
    changes = {DEFAULT_CLIENT_OF_ALICE: {"producer_byte_rate": 10.0, "request_percentage": None}}
    request = request_of(plans.alter_client_quotas(known(), changes, clock, validate_only=True))
    [entry] = request.entries
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    assert parts == {"user": "alice", "client-id": None}
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 10.0, False),
        ("request_percentage", 0.0, True),
    ]
    assert request.validate_only


def altered(name: str | None, code: int) -> AlterClientQuotasResponseEntryData:
    entity = [AlterClientQuotasResponseEntityData(entity_type="user", entity_name=name)]
    return AlterClientQuotasResponseEntryData(error_code=code, error_message="why", entity=entity)


def test_an_invalid_quota_does_not_affect_other_entities() -> None:
    changes = {ALICE: {"nonsense": 1.0}, DEFAULT_USER: {"consumer_byte_rate": 1.0}}
    response = AlterClientQuotasResponse(
        throttle_time_ms=0, entries=[altered("alice", ErrorCode.INVALID_REQUEST), altered(None, 0)]
    )
    with pytest.raises(PartialFailure, match="user 'alice': why") as caught:
        play(plans.alter_client_quotas(known(), changes, clock, validate_only=False), response)
    assert caught.value.succeeded == {DEFAULT_USER: None}
    assert str(DEFAULT_CLIENT_OF_ALICE) == "user 'alice' with the default client-id"


@pytest.mark.parametrize(
    "changes", [{"alice": {}}, {ClientQuotaEntity(): {"a": 1}}, {ALICE: {"a": "1"}}, {ALICE: {"a": True}}]
)
def test_other_changes_are_rejected_before_a_request(changes: object) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match="changes"):
        admin.alter_client_quotas(changes)  # type: ignore[arg-type]


def test_another_entity_type_is_rejected_before_a_request() -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match="'user', 'client-id', 'ip'"):
        admin.describe_client_quotas({"group": "g"})
