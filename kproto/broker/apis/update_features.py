"""UpdateFeatures (key 57): change the level of transaction.version, this broker's only feature (KIP-584).

Clients read the level from ApiVersions. Below level 2, a transactional client sends AddPartitionsToTxn before
it writes to a partition (KIP-890). This broker serves clients of both levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...error_codes import ErrorCode
from ...messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .api_versions import TRANSACTION_VERSION, finalized_transaction_version, supported_transaction_version
from .authorization import AUTHORIZATION_FAILED, on_cluster

# FeatureUpdate.UpgradeType
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def handle_update_features(broker: Broker, call: Call) -> Result:
    """Apply all feature updates of the request, or none of them."""
    request = call.request
    assert isinstance(request, UpdateFeaturesRequest)
    # If a request updates the same feature twice, only the last update applies.
    updates = {update.feature: update for update in request.feature_updates}
    faults = (_update_fault(broker, update) for update in updates.values())
    fault = next(filter(None, faults), None)
    if fault is not None:
        message = "The update failed for all features since the following feature had an error: " + fault
        return _response(updates, ErrorCode.INVALID_UPDATE_VERSION, message)
    update = updates.get(TRANSACTION_VERSION)
    if update is not None and not request.validate_only:
        broker.cluster.finalize_transaction_version(update.max_version_level)
    return _response(updates, ErrorCode.NONE, None)


def _update_fault(broker: Broker, update: FeatureUpdateKey) -> str | None:
    """Return Kafka's message for an invalid update, else None (FeatureControlManager.updateFeature)."""
    level = update.max_version_level
    supported_level = finalized_level = 0
    if update.feature == TRANSACTION_VERSION:
        supported_level = supported_transaction_version(broker)
        finalized_level = finalized_transaction_version(broker)
    # Requests of version 0 have allow_downgrade and no upgrade type (UpdateFeaturesRequest.getFeature).
    upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    reason = None
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif not supported_level and not level:
        reason = f"Feature {update.feature} not found."
    elif not supported_level:
        reason = f"Local controller {min(broker.cluster.nodes)} does not support this feature."
    elif level > supported_level:
        reason = f"Local controller {min(broker.cluster.nodes)} only supports versions 0-{supported_level}"
    elif level < finalized_level and upgrade_type == UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    elif level > finalized_level and upgrade_type != UPGRADE:
        reason = "Can't downgrade to a newer version."
    return reason and f"Invalid update version {level} for feature {update.feature}. {reason}"


def _response(
    updates: Mapping[str, FeatureUpdateKey], error: ErrorCode, message: str | None
) -> UpdateFeaturesResponse:
    """Return the response. After a success it has a result per feature, which v2 does not encode."""
    results = [UpdatableFeatureResult(feature=name, error_code=0, error_message=None) for name in updates]
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=error,
        error_message=message,
        results=[] if error else results,
    )


def refuse(request: UpdateFeaturesRequest, error: ErrorCode, version: int) -> UpdateFeaturesResponse:
    """Refuse the whole request."""
    return _response({}, error, AUTHORIZATION_FAILED)


API = Api(
    request=UpdateFeaturesRequest,
    handle=handle_update_features,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
