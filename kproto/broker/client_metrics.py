"""The metrics that clients push to this broker, and the subscriptions that request them (KIP-714).

Rules, as in Kafka's ClientMetricsManager:

* A client without an instance id receives one.

* All subscriptions that match a client are merged. The merged push interval is the shortest one, but at most
  five minutes. The prefix `*` replaces all other prefixes.

* The subscription id is the CRC-32C of the merged subscription, XORed with the hash of the instance id. So
  each change of the client's merged subscription changes the id.

* A telemetry request that a client sends before the end of its push interval fails with
  THROTTLING_QUOTA_EXCEEDED.

* The push interval does not apply to the first push after a subscription request, to the last push
  (`terminating`), or to a subscription request after UNKNOWN_SUBSCRIPTION_ID or
  UNSUPPORTED_COMPRESSION_TYPE.

* An instance is removed when its connection closes. It is also removed when it has sent no request for three
  push intervals, or for 60 s if this is longer.

* If more than `MAX_INSTANCES` instances exist, the least recently used one is removed.

* Expired instances are removed when any client sends a telemetry request, whereas Kafka uses a timer.

The class `PushedMetrics` replaces Kafka's ClientTelemetryReceiver. The prefixes of a merged subscription are
sorted, whereas Kafka uses the order of a HashSet.

The broker stores payloads without decoding them: `PushedMetrics.metrics` decodes a payload.

At most `MAX_PUSHES` payloads are kept. `MAX_KEPT_BYTES` limits the total size of the payloads and of their
clients' names. The oldest payloads are removed first.

`MAX_KEPT_BYTES` also limits the total size of the attributes of all instances, which Kafka does not limit.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..messages.push_telemetry import PushTelemetryRequest
from ..otlp import MetricPoint, decode
from ..records.batch import crc32c
from ..records.codecs import CodecError
from ..records.compression import CODECS, decompress
from .client_metrics_configs import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    Subscription,
    parse_subscription,
)

MAX_INSTANCES: Final = 16_384
MAX_PUSHES: Final = 1_000
MAX_KEPT_BYTES: Final = 16 << 20
_MIN_EXPIRY_MS: Final = 60_000
_EXPIRY_INTERVALS: Final = 3

# Ids that no client instance may have (Kafka's Uuid.RESERVED): the zero UUID, and the id of the metadata
# topic.
RESERVED_IDS: Final = (UUID(int=0), UUID(int=1))


class PushedMetrics(NamedTuple):
    """One payload that a client pushed."""

    client_instance_id: UUID
    client_id: str
    # The name and version of the client library, from ApiVersions; "unknown" if the client sent none.
    client_software_name: str
    client_software_version: str
    # Whether this is the client's last push before it closes.
    is_terminating: bool
    # The name of the codec, such as "zstd".
    compression: str
    # The payload as the client sent it: OpenTelemetry MetricsData, compressed.
    payload: bytes

    @property
    def size(self) -> int:
        """What the push adds to `_kept_bytes`: the payload's bytes and its three names' characters."""
        names = (self.client_id, self.client_software_name, self.client_software_version)
        return len(self.payload) + sum(map(len, names))

    @property
    def metrics(self) -> list[MetricPoint]:
        """The decoded metrics. Each access decodes them again, because only payloads are kept.

        Raises DecodeError if the payload cannot be decompressed, or is not MetricsData. Raises MissingExtra
        if the package of its codec is not installed.
        """
        try:
            data = decompress(CODECS.index(self.compression), self.payload)
        except CodecError as error:
            raise DecodeError("MetricsData", -1, "", 0, f"{self.compression}: {error}") from None
        return decode(data)


class ClientMetricsResources:
    """The client metrics resources of a cluster, by name."""

    def __init__(self) -> None:
        self._configs: Final[dict[str, Mapping[str, str]]] = {}
        self._subscriptions: Final[dict[str, Subscription]] = {}
        # How often `set` has been called. If this number has risen since the subscriptions that match an
        # instance were merged, they are merged again.
        self.version = 0

    def names(self) -> list[str]:
        """Return the names of the resources."""
        return list(self._configs)

    def configs(self, name: str) -> dict[str, str]:
        """Return the configs that are set on a resource; empty if the resource does not exist."""
        return dict(self._configs.get(name, {}))

    def set(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a resource; without configs, remove the resource.

        The caller must have checked the configs with `check_client_metrics`.
        """
        self.version += 1
        if configs:
            self._configs[name] = dict(configs)
            self._subscriptions[name] = parse_subscription(configs)
        else:
            self._configs.pop(name, None)
            self._subscriptions.pop(name, None)

    def merged(self, attributes: Mapping[str, str]) -> tuple[tuple[str, ...], int]:
        """Return the metric prefixes and the push interval (ms) for a client.

        All subscriptions that match the client contribute prefixes. The interval is the shortest interval of
        these subscriptions, and at most `DEFAULT_INTERVAL_MS`.
        """
        matching = [
            subscription for subscription in self._subscriptions.values() if subscription.matches(attributes)
        ]
        prefixes = {prefix for subscription in matching for prefix in subscription.metrics}
        intervals_ms = [subscription.interval_ms for subscription in matching]
        merged_prefixes = (ALL_METRICS,) if ALL_METRICS in prefixes else tuple(sorted(prefixes))
        return merged_prefixes, min([DEFAULT_INTERVAL_MS, *intervals_ms])


@dataclass(slots=True)
class ClientMetricsInstance:
    """A client that has requested its telemetry subscription, and pushes metrics."""

    attributes: Mapping[str, str]
    metrics: tuple[str, ...]
    push_interval_ms: int
    subscription_id: int
    # The version of the resources (`ClientMetricsResources.version`) from which the subscription was merged.
    subscription_version: int
    expires_at: int
    # The times (ms) of the last subscription request and of the last push that the push interval permitted.
    last_get: int | None = None
    last_push: int | None = None
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def attribute_size(self) -> int:
        """The total number of characters in the attributes. It is limited, because clients choose most
        attributes.
        """
        return sum(map(len, self.attributes.values()))

    def accepts_get(self, now: int) -> bool:
        """Return whether the client may request its subscription at time `now` (ms).

        If no request or push was recorded, or if the push interval has passed since the last recorded one,
        the result is True, and `now` is recorded as the time of this request.

        Before the interval has passed, the result is True only if the last error was UNKNOWN_SUBSCRIPTION_ID
        or UNSUPPORTED_COMPRESSION_TYPE. Such an early request is not recorded.
        """
        recorded = [at for at in (self.last_get, self.last_push) if at is not None]
        if not recorded or now - max(recorded) >= self.push_interval_ms:
            self.last_get = now
            return True
        return self.last_error in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )

    def accepts_push(self, now: int) -> bool:
        """Return whether the client may push now; if so, record the time of the push."""
        if self.last_push is None or now - self.last_push >= self.push_interval_ms:
            self.last_push = now
            return True
        return False


class ClientMetricsManager:
    """The client instances of one broker, and the payloads that they pushed."""

    def __init__(self, resources: ClientMetricsResources) -> None:
        self._resources: Final = resources
        # Instance id -> instance; the least recently used one comes first.
        self._instances: Final[OrderedDict[UUID, ClientMetricsInstance]] = OrderedDict()
        # Total number of characters in the attributes of all instances.
        self._attribute_size = 0
        self._ids_by_connection: Final[dict[int, UUID]] = {}
        self._pushes: Final[deque[PushedMetrics]] = deque()
        self._kept_bytes = 0

    @property
    def pushes(self) -> list[PushedMetrics]:
        """The received payloads, the oldest first."""
        return list(self._pushes)

    def instance(
        self, instance_id: UUID, conn: int, attributes: Mapping[str, str], now: int
    ) -> ClientMetricsInstance:
        """Return the instance of a client. Create the instance if it is unknown, expired or outdated.

        An instance is outdated if the metrics resources have changed since its creation.

        The call postpones the instance's expiry. It also removes expired instances and, if the limits
        MAX_INSTANCES or MAX_KEPT_BYTES are exceeded, the least recently used ones.
        """
        instance = self._instances.get(instance_id)
        if instance is not None and instance.expires_at <= now:
            instance = None
        if instance is None:
            self._ids_by_connection[conn] = instance_id
            instance = self._create_instance(instance_id, attributes)
        elif instance.subscription_version < self._resources.version:
            instance = self._create_instance(instance_id, instance.attributes)
        instance.expires_at = now + max(_MIN_EXPIRY_MS, _EXPIRY_INTERVALS * instance.push_interval_ms)
        self._remove_instance(instance_id)
        self._instances[instance_id] = instance
        self._attribute_size += instance.attribute_size
        self._remove_oldest_instances(now)
        return instance

    def _remove_instance(self, instance_id: UUID) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            self._attribute_size -= instance.attribute_size

    def _remove_oldest_instances(self, now: int) -> None:
        """Remove expired and surplus instances, but not the most recently used instance.

        Instances are surplus while MAX_INSTANCES or MAX_KEPT_BYTES is exceeded. Begin with the least recently
        used instance, and end at the first instance that is kept.
        """
        while len(self._instances) > 1:
            instance_id, oldest = next(iter(self._instances.items()))
            is_surplus = len(self._instances) > MAX_INSTANCES or self._attribute_size > MAX_KEPT_BYTES
            if not is_surplus and oldest.expires_at > now:
                return
            self._remove_instance(instance_id)

    def _create_instance(self, instance_id: UUID, attributes: Mapping[str, str]) -> ClientMetricsInstance:
        """Return a new instance with its merged subscription; the caller stores it and sets its expiry."""
        attributes = {**attributes, "client_instance_id": kafka_uuid(instance_id)}
        metrics, interval_ms = self._resources.merged(attributes)
        return ClientMetricsInstance(
            attributes,
            metrics,
            interval_ms,
            subscription_id(metrics, interval_ms, instance_id),
            self._resources.version,
            expires_at=0,
        )

    def on_disconnect(self, conn: int) -> None:
        """Remove the instance that a connection created."""
        instance_id = self._ids_by_connection.pop(conn, None)
        if instance_id is not None:
            self._remove_instance(instance_id)

    def receive(self, request: PushTelemetryRequest, attributes: Mapping[str, str]) -> None:
        """Keep a payload, and remove the oldest payloads if there are too many."""
        push = PushedMetrics(
            request.client_instance_id,
            attributes["client_id"],
            attributes["client_software_name"],
            attributes["client_software_version"],
            request.terminating,
            CODECS[request.compression_type],
            bytes(request.metrics),
        )
        self._pushes.append(push)
        self._kept_bytes += push.size
        while len(self._pushes) > MAX_PUSHES or self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= self._pushes.popleft().size


def kafka_uuid(value: UUID) -> str:
    """Return an id in Kafka's form: 22 characters of URL-safe base64."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """Return the id of a subscription as an int32 (ClientMetricsManager.computeSubscriptionId)."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    # Java's UUID.hashCode: the XOR of the four 32-bit words.
    folded = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
    instance_hash = (folded >> 32) ^ (folded & 0xFFFFFFFF)
    unsigned_id = crc32c(text.encode()) ^ instance_hash
    return unsigned_id - ((unsigned_id >> 31) << 32)
