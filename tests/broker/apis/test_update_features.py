"""UpdateFeatures (KIP-584): levels are raised and lowered, and invalid updates are rejected.

tests/conformance/test_cluster_apis_like_kafka.py compares the responses to UpdateFeatures with a real
Kafka's responses.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer import Admin, FeatureUpdate, Producer
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.stage import Stage

UP, SAFE, UNSAFE = 1, 2, 3


def update(stage: Stage, level: int, how: int = UP, name: str = "transaction.version", **fields: Any) -> Any:
    changed = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how)
    version = fields.pop("version", 2)
    return stage.client().ask(UpdateFeaturesRequest(feature_updates=[changed], **fields), version)


def levels(stage: Stage) -> tuple[list[int], int]:
    """Return the finalized levels that ApiVersions lists, and their epoch."""
    hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = stage.client().ask(hello, 4)
    return (
        [feature.max_version_level for feature in response.finalized_features],
        response.finalized_features_epoch,
    )


def test_a_level_is_lowered_and_raised() -> None:
    stage = Stage()
    assert update(stage, 1, SAFE).error_code == 0
    assert levels(stage) == ([1], 1)
    assert update(stage, 0, UNSAFE).error_code == 0
    assert levels(stage) == ([], 2)
    assert update(stage, 2).error_code == 0
    assert levels(stage) == ([2], 3)


def test_a_validation_changes_nothing() -> None:
    stage = Stage()
    assert update(stage, 1, SAFE, validate_only=True).error_code == 0
    assert levels(stage) == ([2], 0)


@pytest.mark.parametrize(
    ("level", "how", "name"),
    [
        (3, UP, "transaction.version"),
        (-1, SAFE, "transaction.version"),
        (1, UP, "transaction.version"),
        (2, 0, "transaction.version"),
        (2, 4, "transaction.version"),
        (1, UP, "metadata.version"),
        (0, SAFE, "unknown.version"),
    ],
)
def test_an_invalid_update_is_rejected(level: int, how: int, name: str) -> None:
    stage = Stage()
    response = update(stage, level, how, name)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"Invalid update version {level} for feature {name}." in response.error_message
    assert levels(stage) == ([2], 0)


def test_a_level_is_not_raised_by_a_downgrade() -> None:
    stage = Stage()
    update(stage, 0, SAFE)
    assert update(stage, 1, SAFE).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_version_0_lowers_a_level_with_allow_downgrade() -> None:
    stage = Stage()
    for is_allowed, error, finalized in (
        (False, ErrorCode.INVALID_UPDATE_VERSION, ([2], 0)),
        (True, ErrorCode.NONE, ([1], 1)),
    ):
        changed = FeatureUpdateKey(
            feature="transaction.version", max_version_level=1, allow_downgrade=is_allowed
        )
        response = stage.client().ask(UpdateFeaturesRequest(feature_updates=[changed]), 0)
        assert (response.error_code, levels(stage)) == (error, finalized)


@pytest.mark.parametrize(("version", "count"), [(0, 1), (1, 1), (2, 0)])
def test_only_earlier_versions_have_a_result_for_each_feature(version: int, count: int) -> None:
    assert len(update(Stage(), 2, version=version).results) == count


def test_of_two_updates_of_a_feature_the_last_one_applies() -> None:
    stage = Stage()
    updates = [
        FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=SAFE)
        for level in (0, 1)
    ]
    assert stage.client().ask(UpdateFeaturesRequest(feature_updates=updates)).error_code == 0
    assert levels(stage) == ([1], 1)


@pytest.mark.parametrize("level", [0, 1])
def test_transactions_of_a_lower_level_succeed(level: int) -> None:
    with running({"t": 1}) as server, Admin(server.bootstrap) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(level, "safe_downgrade")})
        with Producer(server.bootstrap, transactional_id="x") as producer:
            producer.begin()
            sent = producer.send("t", b"v")
            producer.commit()
            assert sent.result().offset == 0
        assert [entry.transactional_id for entry in admin.list_transactions()[1]] == ["x"]
