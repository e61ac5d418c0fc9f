"""DescribeClientQuotas (KIP-546): the entities that a filter matches, and filters that are rejected.

tests/conformance/test_boundary_requests_like_kafka.py compares the responses to random DescribeClientQuotas
requests with a real Kafka's responses.
"""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.broker.stage import Stage

EXACT, DEFAULT, ANY = 0, 1, 2
Component = tuple[str, int, str | None]


def ask(stage: Stage, *components: Component, strict: bool = False) -> tuple[int, list[str] | None]:
    """Request the quotas of the entities that match all components.

    Return the error code, and the entities, such as "user=alice client-id=app". After an error the entities
    are None.
    """
    wanted = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = stage.client().ask(DescribeClientQuotasRequest(components=wanted, strict=strict))
    if response.entries is None:
        return response.error_code, None
    return response.error_code, [
        " ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)
        for entry in response.entries
    ]


@pytest.fixture
def stage() -> Stage:
    """Return a broker with quotas of a user, a client id, a user with a client id, and an IP address."""
    stage = Stage()
    quotas = stage.broker.cluster.client_quotas
    for entity in (
        (("user", "a"),),
        (("user", None),),
        (("client-id", "c"),),
        (("client-id", "c"), ("user", "a")),
        (("ip", "::1"),),
    ):
        quotas[entity] = {"request_percentage": 1.0}
    return stage


@pytest.mark.parametrize(
    ("components", "strict", "entities"),
    [
        ([], False, ["user=a", "user=None", "client-id=c", "client-id=c user=a", "ip=::1"]),
        ([], True, []),
        ([("user", EXACT, "a")], False, ["user=a", "client-id=c user=a"]),
        ([("user", EXACT, "a")], True, ["user=a"]),
        ([("user", DEFAULT, None)], False, ["user=None"]),
        ([("user", ANY, None)], True, ["user=a", "user=None"]),
        ([("user", ANY, None), ("client-id", EXACT, "c")], False, ["client-id=c user=a"]),
        ([("ip", EXACT, "::2")], False, []),
    ],
)
def test_entities_match_all_components(
    stage: Stage, components: list[Component], strict: bool, entities: list[str]
) -> None:
    assert ask(stage, *components, strict=strict) == (0, entities)


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_filter_is_rejected(stage: Stage, components: list[Component], error: ErrorCode) -> None:
    assert ask(stage, *components) == (error, None)
