"""UpdateFeatures (key 57): upgrade or downgrade the cluster's feature levels (KIP-584)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field("1+", default=False)


class FeatureUpdateKey(Struct):
    feature: String = field(map_key=True)
    max_version_level: Int16
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    # The result of each update. v2 does not have this field, because all updates succeed or fail together.
    results: list[UpdatableFeatureResult] = field("0-1", default=[], ignorable=True)


class UpdatableFeatureResult(Struct):
    feature: String = field(map_key=True)
    error_code: Int16
    error_message: String | None
