"""AlterClientQuotas (KIP-546): quotas are set and removed, and invalid changes are rejected.

tests/conformance/test_boundary_requests_like_kafka.py compares the responses to random AlterClientQuotas
requests with a real Kafka's responses.
"""

from __future__ import annotations

from math import inf, nan

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from kproto.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.broker.stage import Stage

Entity = tuple[tuple[str, str | None], ...]
ALICE: Entity = (("user", "alice"),)


def changes(entity: Entity, **values: float | None) -> AlterClientQuotasRequestEntryData:
    """Return the changes to an entity's quotas. A value of None removes the quota."""
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(
    stage: Stage, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[str]:
    """Alter quotas. Return the name of the error code of each entry in the response."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = stage.client().ask(request)
    assert isinstance(response, AlterClientQuotasResponse)
    return [ErrorCode(entry.error_code).name for entry in response.entries]


def quotas(stage: Stage) -> dict[Entity, dict[str, float]]:
    response = stage.client().ask(DescribeClientQuotasRequest(components=[], strict=False))
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            quota.key: quota.value for quota in entry.values
        }
        for entry in response.entries
    }


def test_quotas_are_set_and_removed() -> None:
    stage = Stage()
    user_and_client: Entity = (("client-id", None), ("user", "alice"))
    assert alter(
        stage, changes(ALICE, producer_byte_rate=5e6), changes(user_and_client, request_percentage=12.5)
    ) == [
        "NONE",
        "NONE",
    ]
    assert alter(stage, changes(ALICE, consumer_byte_rate=7, request_percentage=None)) == ["NONE"]
    assert quotas(stage) == {
        ALICE: {"producer_byte_rate": 5e6, "consumer_byte_rate": 7},
        user_and_client: {"request_percentage": 12.5},
    }
    alter(stage, changes(ALICE, producer_byte_rate=None, consumer_byte_rate=None))
    assert list(quotas(stage)) == [user_and_client]


def test_a_validation_changes_nothing() -> None:
    stage = Stage()
    assert alter(stage, changes(ALICE, producer_byte_rate=1), validate_only=True) == ["NONE"]
    assert quotas(stage) == {}


@pytest.mark.parametrize(
    "entity",
    [
        (),
        (("group", "g"),),
        (("user", ""),),
        (("ip", "10.0.0.1"), ("user", "alice")),
        (("ip", "no address"),),
    ],
)
def test_an_invalid_entity_is_rejected(entity: Entity) -> None:
    assert alter(Stage(), changes(entity, producer_byte_rate=1)) == ["INVALID_REQUEST"]


@pytest.mark.parametrize(
    ("entity", "key", "value", "is_valid"),
    [
        (ALICE, "producer_byte_rate", 1.0, True),
        (ALICE, "producer_byte_rate", 1.5, False),
        (ALICE, "producer_byte_rate", 0.0, False),
        (ALICE, "producer_byte_rate", -1.0, False),
        (ALICE, "consumer_byte_rate", inf, False),
        (ALICE, "consumer_byte_rate", nan, True),
        (ALICE, "request_percentage", 0.5, True),
        (ALICE, "controller_mutation_rate", inf, True),
        (ALICE, "connection_creation_rate", 1.0, False),
        ((("ip", None),), "connection_creation_rate", 1.0, True),
        ((("ip", "::1"),), "connection_creation_rate", 2.0**31, False),
        ((("ip", "10.0.0.1"),), "producer_byte_rate", 1.0, False),
    ],
)
def test_the_value_of_a_quota_is_checked(entity: Entity, key: str, value: float, is_valid: bool) -> None:
    stage = Stage()
    assert alter(stage, changes(entity, **{key: value})) == ["NONE" if is_valid else "INVALID_REQUEST"]
    assert bool(quotas(stage)) == is_valid


def test_one_invalid_quota_rejects_all_changes_of_its_entity() -> None:
    stage = Stage()
    bob: Entity = (("user", "bob"),)
    codes = alter(
        stage,
        changes(ALICE, producer_byte_rate=1, consumer_byte_rate=0.5),
        changes(bob, producer_byte_rate=1),
    )
    assert codes == ["INVALID_REQUEST", "NONE"]
    assert list(quotas(stage)) == [bob]


def test_the_first_changes_of_an_entity_that_a_request_names_twice_apply() -> None:
    stage = Stage()
    twice = [changes(ALICE, producer_byte_rate=1), changes(ALICE, producer_byte_rate=2)]
    assert alter(stage, *twice) == ["INVALID_REQUEST"]
    assert quotas(stage) == {ALICE: {"producer_byte_rate": 1}}


def test_a_quota_that_an_entity_names_twice_is_rejected() -> None:
    stage = Stage()
    entry = changes(ALICE, producer_byte_rate=1)
    entry.ops *= 2
    assert alter(stage, entry) == ["INVALID_REQUEST"]
    assert quotas(stage) == {}
