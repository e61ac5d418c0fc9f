"""FindCoordinator returns the coordinator of one key or of many keys."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.stage import Client, Stage
from tests.rules import rule


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, group_initial_rebalance_delay_ms=0)


@rule("R7")
@pytest.mark.parametrize("version", range(7))
def test_the_only_broker_coordinates_every_group(client: Client, version: int) -> None:
    request = (
        FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
    )
    response = client.ask(request, version)
    coordinator = response.coordinators[0] if version >= 4 else response
    assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (
        0,
        1,
        "localhost",
        9092,
    )


@pytest.mark.parametrize("kind", [2, 7])
@pytest.mark.parametrize("version", [3, 6])
def test_other_coordinator_types_are_refused_with_a_message(client: Client, version: int, kind: int) -> None:
    keys: dict[str, Any] = {"coordinator_keys": ["x"]} if version >= 4 else {"key": "x"}
    response = client.ask(FindCoordinatorRequest(key_type=kind, **keys), version)
    coordinator = response.coordinators[0] if version >= 4 else response
    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert coordinator.error_message
