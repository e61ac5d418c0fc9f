"""The world of a scenario: a `World` that applies the parameters of the scenario's run.

The world replaces options of each member that joins, adds members to the group, and changes the number of
partitions. It records the replaced values for the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..errors import ConfigError
from ..group.assignors import ASSIGNORS
from ..models.contract import CONSUMER_OPTIONS
from ..models.index import Model, model_name
from ..testing.world import Client, World
from .parameters import PARAMETERS, Parameters

_JAVA_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
# Maps each modelled client to its assignors. sarama-cluster ignores configured assignors and uses range.
_ASSIGNORS: Final[Mapping[str, tuple[str, ...]]] = {
    "java": _JAVA_ASSIGNORS,
    "java-2.6": _JAVA_ASSIGNORS,
    "sarama": _JAVA_ASSIGNORS,
    "kafka-go": ("range", "roundrobin"),
    "librdkafka": ("range", "roundrobin", "cooperative-sticky"),
    "sarama-cluster": ("range",),
}
# Clients without static membership.
NOT_STATIC: Final = ("kafka-go", "sarama-cluster")
# Processing time of a batch in ms, in runs with the parameter `commit`. If a member is killed
# before this time has passed since a delivery, it has not processed the batch.
_PROCESSING_MS = 5_000
# The session timeout and the heartbeat interval, in ms, of a member whose scenario does not set them. 10 s is
# the lowest default of all clients (sarama and kafka-clients 2.6), and 3 s is Kafka's default.
_SESSION_MS, _HEARTBEAT_MS = 10_000, 3_000


def assignors_of(client: str) -> tuple[str, ...]:
    """Return the names of the assignors that a client has. kproto's own client has all of `ASSIGNORS`."""
    return _ASSIGNORS.get(client, tuple(ASSIGNORS))


class StoryWorld(World):
    """A world that applies `parameters`, which the user of the scenario sets.

    `parameters.partitions` replaces the partition count of the first topic.

    `members` is the number of members that the scenario itself starts. `parameters.members` is the number of
    members that the user wants. The additional members join with the first one and have its options. If
    `members` is None, no members are added.

    `replaced` contains the values that parameters have replaced: parameter -> the scenario's own values.

    Raises ConfigError if `parameters.members` is smaller than `members`. `join` raises ConfigError for a
    value that the client rejects.
    """

    def __init__(
        self,
        parameters: Parameters,
        topics: Mapping[str, int],
        settings: Mapping[str, str | int] | None = None,
        *,
        members: int | None = None,
        **options: Any,
    ) -> None:
        self.parameters: Final = parameters
        self.replaced: Final[dict[str, list[Any]]] = {}
        # The maximum time in ms by which the parameters delay an expiry, the rebalance after it, or a
        # refresh.
        self.extra_ms = 0
        self._missing, self._named = 0, members or 0
        self._committing: set[str] = set()
        if parameters.partitions is not None and topics:
            first = next(iter(topics))
            self.replaced["partitions"] = [topics[first]]
            topics = {**topics, first: parameters.partitions}
        if parameters.members is not None and members is not None:
            if parameters.members < members:
                raise ConfigError(
                    "members",
                    parameters.members,
                    f"at least {members}, the number of members that the scenario itself starts",
                )
            self.replaced["members"] = [members]
            self._missing = parameters.members - members
        super().__init__(topics, settings, seed=parameters.seed, **options)

    def kind(self, written: str) -> str:
        """Return the client that plays a member: the parameter `client` if it is set, otherwise `written`."""
        if self.parameters.client not in (None, written):
            self._replace("client", written)
        return self.parameters.client or written

    def join(
        self, name: str, model: Model | None = None, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Any:
        """Start a member as `World.join` does. The scenario's parameters replace some of its options."""
        names = list(topics)
        client = super().join(name, model, topics=names, **self._options(name, model, options))
        if self.parameters.commit is not None:
            client.works_ms = _PROCESSING_MS
        extra, self._missing = self._missing, 0
        for number in range(extra):
            self.join(f"m{self._named + number + 1}", model, topics=names, **options)
        return client

    def _options(self, name: str, model: Model | None, written: Mapping[str, Any]) -> dict[str, Any]:
        client = "kproto" if model is None else model_name(getattr(model, "__name__", ""))
        own_name = CONSUMER_OPTIONS if model is None else {option: option for option in CONSUMER_OPTIONS}
        options = dict(written)
        values = {
            parameter: value
            for parameter, value in self.parameters.changed().items()
            if PARAMETERS[parameter].member_option
        }
        for parameter, value in values.items():
            option = own_name[PARAMETERS[parameter].member_option]
            self._replace(parameter, written.get(option))
            if parameter == "static":
                options[option] = _instance(client, bool(value), written.get(option, name))
            elif parameter == "assignor":
                options[option] = (_checked_assignor(client, str(value)),)
            else:
                options[option] = value
        if self.parameters.commit is not None:
            self.replaced["commit"] = []
            options[own_name["auto_commit"]] = False
        refresh_ms = self.parameters.refresh_ms
        if refresh_ms is not None:
            # sarama's leader detects growth at its checker's first tick after a refresh. Refreshes and ticks
            # have the same interval, so detection takes up to two intervals.
            self._wait_longer(2 * (refresh_ms - (written.get(own_name["metadata_ms"]) or refresh_ms)))
        if {"session_timeout_ms", "heartbeat_ms"} & set(values):
            self._fit_heartbeat(options, written, own_name["session_ms"], own_name["heartbeat_ms"])
        return options

    def _fit_heartbeat(
        self, options: dict[str, Any], written: Mapping[str, Any], session_name: str, heartbeat_name: str
    ) -> None:
        """Check the heartbeat interval.

        If the parameter `heartbeat_ms` is not set, limit the interval to a third of the session timeout.

        Raises ConfigError if the interval is not lower than the session timeout, as Java does.
        """
        session, heartbeat = (
            options.get(session_name) or _SESSION_MS,
            options.get(heartbeat_name) or _HEARTBEAT_MS,
        )
        if self.parameters.heartbeat_ms is None:
            heartbeat = options[heartbeat_name] = min(heartbeat, session // 3)
        if heartbeat >= session:
            raise ConfigError("heartbeat_ms", heartbeat, f"less than the session timeout of {session} ms")
        longer_session = session - (written.get(session_name) or _SESSION_MS)
        longer_heartbeat = heartbeat - (written.get(heartbeat_name) or _HEARTBEAT_MS)
        self._wait_longer(longer_session + 2 * longer_heartbeat, 2 * longer_heartbeat)

    def _wait_longer(self, *times_ms: int) -> None:
        self.extra_ms = max(self.extra_ms, *times_ms)

    def _replace(self, parameter: str, written: object) -> None:
        values = self.replaced.setdefault(parameter, [])
        if written not in values:
            values.append(written)

    # ---- the order of commits

    def observe(self, source: Client | str, kind: str, *details: Any, **named: Any) -> None:
        """Record an observation. With the parameter `commit`, a delivery schedules a commit."""
        super().observe(source, kind, *details, **named)
        order = self.parameters.commit
        if order is None or kind != "delivered" or isinstance(source, str) or source.name in self._committing:
            return
        self._committing.add(source.name)
        wait = getattr(source, "works_ms", 0) if order == "after" else 0
        self.push(self.now + wait, self._commit, source)

    def _commit(self, member: Any) -> None:
        self._committing.discard(member.name)
        if member.alive:
            member.commit(dict(member.positions))


def _instance(client: str, is_static: bool, name: str) -> str | None:
    if is_static and client in NOT_STATIC:
        raise ConfigError("static", True, f"{client} does not support static members")
    return name if is_static else None


def _checked_assignor(client: str, assignor: str) -> str:
    allowed = assignors_of(client)
    if assignor not in allowed:
        raise ConfigError("assignor", assignor, f"allowed: {', '.join(allowed)}")
    return assignor
