"""Features in the admin API: finalized and supported levels, and their changes."""

from __future__ import annotations

import pytest

from consumer import Admin, FeatureUpdate, FeatureVersionRange
from consumer.engine.admin import features as plans
from consumer.engine.network.call import Prepared
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, PartialFailure
from kproto.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from kproto.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.consumer.engine.admin.stage import VERSIONS, asks_of, clock, known, play


def test_finalized_and_supported_levels_are_returned_by_name() -> None:
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[],
        supported_features=[SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)],
        finalized_features_epoch=7,
        finalized_features=[
            FinalizedFeatureKey(name="kraft.version", max_version_level=1, min_version_level=1)
        ],
    )
    features, _ = play(plans.describe_features(known(), clock, node=None), response)
    assert features.finalized_features == {"kraft.version": FeatureVersionRange(1, 1)}
    assert features.supported_features == {"kraft.version": FeatureVersionRange(0, 1)}
    assert features.finalized_features_epoch == 7


def test_a_cluster_without_finalized_features_has_no_epoch() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    features, _ = play(plans.describe_features(known(), clock, node=1), response)
    assert features.finalized_features_epoch is None


def test_features_of_the_embedded_broker_are_those_of_its_api_versions() -> None:
    with running() as server, Admin(server.bootstrap) as admin:
        features = admin.describe_features()
        assert features.finalized_features == {"transaction.version": FeatureVersionRange(2, 2)}
        assert features.supported_features == {"transaction.version": FeatureVersionRange(0, 2)}
        with pytest.raises(BrokerError, match="BROKER_ID_NOT_REGISTERED"):
            admin.describe_features(99)


def updates_of(version: int, upgrade_type: str) -> tuple[bool, int]:
    updates = {"metadata.version": FeatureUpdate(20, upgrade_type)}
    plan = plans.update_features(known(), updates, clock, validate_only=False, timeout_ms=5)
    [ask] = asks_of(plan)
    assert isinstance(ask.request, Prepared)
    message = ask.request.build(version)
    assert isinstance(message, UpdateFeaturesRequest)
    [entry] = message.feature_updates
    return entry.allow_downgrade, entry.upgrade_type


def test_the_upgrade_type_is_a_flag_in_version_0_and_a_code_afterwards() -> None:
    assert updates_of(0, "safe_downgrade") == (True, 1)
    assert updates_of(1, "safe_downgrade") == (False, 2)
    assert updates_of(2, "unsafe_downgrade") == (False, 3)
    assert updates_of(0, "upgrade") == (False, 1)


def test_each_feature_has_a_result_of_its_own_up_to_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "UpdateFeatures", 1)
    results = [
        UpdatableFeatureResult(feature="a", error_code=0, error_message=None),
        UpdatableFeatureResult(
            feature="b", error_code=ErrorCode.FEATURE_UPDATE_FAILED, error_message="too high"
        ),
    ]
    response = UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=results)
    updates = {"a": FeatureUpdate(1), "b": FeatureUpdate(9)}
    with pytest.raises(PartialFailure, match="b: too high") as caught:
        play(plans.update_features(known(), updates, clock, validate_only=False, timeout_ms=5), response)
    assert caught.value.succeeded == {"a": None}


def test_all_features_succeed_or_fail_together_from_version_2_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "UpdateFeatures", 2)
    updates = {"a": FeatureUpdate(1), "b": FeatureUpdate(9)}
    good = UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None)
    plan = plans.update_features(known(), updates, clock, validate_only=False, timeout_ms=5)
    assert play(plan, good)[0] == {"a": None, "b": None}
    bad = UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="b is too high"
    )
    plan = plans.update_features(known(), updates, clock, validate_only=False, timeout_ms=5)
    with pytest.raises(PartialFailure, match="b is too high") as caught:
        play(plan, bad)
    assert set(caught.value.failed) == {"a", "b"}


@pytest.mark.parametrize("update", [3, FeatureUpdate(-1), FeatureUpdate(1, "downgrade")])
def test_another_update_is_rejected_before_a_request(update: object) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match="updates"):
        admin.update_features({"metadata.version": update})  # type: ignore[dict-item]
