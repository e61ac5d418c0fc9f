"""The client of a sarama-cluster Consumer: sarama's client with the options of sarama-cluster's Config."""

from __future__ import annotations

from dataclasses import replace

from ...messages.fetch import FetchRequest
from ...messages.find_coordinator import FindCoordinatorRequest
from ...messages.heartbeat import HeartbeatRequest
from ...messages.join_group import JoinGroupRequest
from ...messages.leave_group import LeaveGroupRequest
from ...messages.list_offsets import ListOffsetsRequest
from ...messages.metadata import MetadataRequest
from ...messages.offset_commit import OffsetCommitRequest
from ...messages.offset_fetch import OffsetFetchRequest
from ...messages.sync_group import SyncGroupRequest
from ..contract import ModelConfig
from ..sarama.client import SaramaClient
from ..sarama.config import MAX_RESPONSE_SIZE, SARAMA_1_17, api_key, settings

# API key -> request version, the lowest that a current broker supports. sarama-cluster hard-codes the
# versions of group requests.
VERSIONS: dict[int, int] = {
    api_key(FetchRequest): 4,
    api_key(ListOffsetsRequest): 1,
    api_key(MetadataRequest): 1,
    api_key(OffsetCommitRequest): 2,
    api_key(OffsetFetchRequest): 1,
    api_key(FindCoordinatorRequest): 0,
    api_key(JoinGroupRequest): 0,
    api_key(HeartbeatRequest): 0,
    api_key(LeaveGroupRequest): 0,
    api_key(SyncGroupRequest): 0,
}


class ClusterClient(SaramaClient):
    """The client of sarama 1.17.0 (2018), with the options of sarama-cluster."""

    def __init__(self, config: ModelConfig) -> None:
        base = settings(replace(config, assignors=None, instance=None, rack=None))
        session_ms = 30_000 if config.session_ms is None else config.session_ms
        fetch_wait_ms = 250 if config.fetch_wait_ms is None else config.fetch_wait_ms
        cluster_settings = replace(
            base,
            group_session_timeout=session_ms,
            consumer_max_wait_time=fetch_wait_ms,
            fetch_max_bytes=MAX_RESPONSE_SIZE,
        )
        super().__init__(cluster_settings, VERSIONS, SARAMA_1_17)
        self.sends_notifications = bool(config.extra.get("Return.Notifications", True))
        self.strategy = str(config.extra.get("PartitionStrategy", "range"))
        self.whitelist = _text_option(config, "Whitelist")
        self.blacklist = _text_option(config, "Blacklist")

    def leave_request(self, member_id: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=self.settings.group_id, member_id=member_id)


def _text_option(config: ModelConfig, name: str) -> str | None:
    value = config.extra.get(name)
    return None if value is None else str(value)
