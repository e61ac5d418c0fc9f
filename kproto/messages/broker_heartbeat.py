"""BrokerHeartbeat (key 63): a broker reports to the controller that it is alive (KIP-631)."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Bool, Int16, Int32, Int64, Uuid


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    # The log directories that failed and went offline (KIP-858).
    offline_log_dirs: list[Uuid] = field("1+", default=[], tag=0)
    # The log directories that get no new replicas (KIP-1066).
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool
