"""Admin operations that describe and change the features of a cluster, such as metadata.version (KIP-584)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from ..error_actions import CONTROLLER
from ..metadata.cluster import ClusterView
from ..network.api_versions import SOFTWARE_NAME, SOFTWARE_VERSION
from ..network.call import Call, Prepared
from .fanout import Answer, Router, ask_broker, fan_out, for_all, to_controller, to_nodes
from .plan import Plan, expect_response, require_version

# The codes of FeatureUpdate.UpgradeType.
UPGRADE_TYPES: Final = {"upgrade": 1, "safe_downgrade": 2, "unsafe_downgrade": 3}
# The last version of UpdateFeatures whose response has a result for each feature.
_LAST_WITH_RESULTS = 1


class FeatureVersionRange(msgspec.Struct, frozen=True):
    """A range of a feature's levels, finalized or supported.

    Java: FinalizedVersionRange and SupportedVersionRange.
    """

    min_version: int
    max_version: int


class FeatureMetadata(msgspec.Struct, frozen=True):
    """The finalized feature levels of a cluster, and the levels that the responding broker supports.

    The keys of both mappings are feature names.

    `finalized_features_epoch` is the offset up to which the broker had read the metadata log when it returned
    the finalized levels, or None if the cluster has no finalized features. Java: FeatureMetadata.
    """

    finalized_features: Mapping[str, FeatureVersionRange]
    supported_features: Mapping[str, FeatureVersionRange]
    finalized_features_epoch: int | None


class FeatureUpdate(msgspec.Struct, frozen=True):
    """The new level of a feature; 0 disables the feature. Java: FeatureUpdate.

    `upgrade_type` is "upgrade", "safe_downgrade", or "unsafe_downgrade", which may lose metadata.
    """

    max_version_level: int
    upgrade_type: str = "upgrade"


def describe_features(
    view: ClusterView, clock: Callable[[], int], *, node: int | None
) -> Plan[FeatureMetadata]:
    """Return the features that the broker `node` reports; None stands for any broker."""

    def read(call: Call) -> tuple[int, str | None, FeatureMetadata]:
        response = expect_response(ApiVersionsResponse, call)
        finalized = {
            feature.name: FeatureVersionRange(feature.min_version_level, feature.max_version_level)
            for feature in response.finalized_features
        }
        supported = {
            feature.name: FeatureVersionRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
        }
        epoch = response.finalized_features_epoch
        return response.error_code, None, FeatureMetadata(finalized, supported, epoch if epoch >= 0 else None)

    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
    router: Router[str] = to_nodes(view, clock, lambda item: node)
    return (yield from ask_broker(router, "ApiVersions", CONTROLLER, request, read))


def update_features(
    view: ClusterView,
    updates: Mapping[str, FeatureUpdate],
    clock: Callable[[], int],
    *,
    validate_only: bool,
    timeout_ms: int,
) -> Plan[dict[str, None]]:
    """Change the level of each feature. From Kafka 4.0 on, all changes succeed or fail together."""

    def request(names: Sequence[str]) -> Prepared:
        def build(version: int) -> UpdateFeaturesRequest:
            if validate_only:
                require_version("UpdateFeatures", version, 1, "3.3", "to validate only (KIP-778)")
            return UpdateFeaturesRequest(
                timeout_ms=timeout_ms,
                feature_updates=[_feature_update(name, updates[name], version) for name in names],
                validate_only=validate_only,
            )

        return Prepared(UpdateFeaturesRequest, build)

    def read(call: Call, names: Sequence[str]) -> Iterator[Answer[str, None]]:
        response = expect_response(UpdateFeaturesResponse, call)
        has_results = call.version <= _LAST_WITH_RESULTS
        if response.error_code or not has_results:
            yield from for_all(names, response.error_code, response.error_message)
        for result in response.results:
            yield Answer(result.feature, None, result.error_code, result.error_message)

    router = to_controller(view, clock)
    return (yield from fan_out(updates, router, "UpdateFeatures", CONTROLLER, request, read))


def _feature_update(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    """Return the entry of one feature in an UpdateFeatures request.

    Version 0 does not distinguish safe from unsafe downgrades.
    """
    if version == 0:
        return FeatureUpdateKey(
            feature=name,
            max_version_level=update.max_version_level,
            allow_downgrade=update.upgrade_type != "upgrade",
        )
    return FeatureUpdateKey(
        feature=name,
        max_version_level=update.max_version_level,
        upgrade_type=UPGRADE_TYPES[update.upgrade_type],
    )
