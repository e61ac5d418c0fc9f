"""The parameters of scenarios: their command-line options, their limits, and what each one changes.

`PARAMETERS` is the only table of parameters. A scenario lists the parameters that it takes, as in
`takes=("client", "heartbeat_ms")`.

A parameter with a `member_option` replaces that option of each member of the scenario's group. `client`
replaces the members' client, and `commit` turns off their automatic commits. `members` and `partitions` set
the numbers of members and partitions. `StoryWorld` applies all of these. Scenarios read the other parameters
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal

from ..errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One row of `PARAMETERS`.

    `kind` decides how a value is written on the command line.

    `limits` are the smallest and the largest value. Beyond most of these limits, a run would take minutes.

    `member_option` is the option of `ModelConfig` that the parameter replaces, or "" if it replaces none.

    `taken_by` says which scenarios take the parameter. The error for a parameter that a scenario does not
    take contains this text.
    """

    option: str
    kind: Literal["time", "time from 0", "count", "rate", "name", "switch"]
    help: str
    taken_by: str
    limits: tuple[int, int] | None = None
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    member_option: str = ""


# Field of `Parameters` -> its description.
PARAMETERS: Final[Mapping[str, Parameter]] = {
    "client": Parameter(
        option="--client",
        kind="name",
        metavar="NAME",
        help="the client whose model runs: sarama, kafka-go, ... or kproto",
        taken_by="scenarios about any client",
    ),
    "members": Parameter(
        option="--members",
        kind="count",
        limits=(1, 200),
        help="the number of members",
        taken_by="scenarios in which more members may join those that the scenario names",
    ),
    "partitions": Parameter(
        option="--partitions",
        kind="count",
        limits=(1, 1_000),
        help="the number of partitions of the topic",
        taken_by="scenarios that treat all partitions of their topic alike",
    ),
    "session_timeout_ms": Parameter(
        option="--session-timeout",
        kind="time",
        # 30 min is Kafka's default of group.max.session.timeout.ms.
        limits=(1_000, 1_800_000),
        help="session.timeout.ms of the members",
        member_option="session_ms",
        taken_by="scenarios whose members join a group",
    ),
    "heartbeat_ms": Parameter(
        option="--heartbeat",
        kind="time",
        limits=(10, 3_600_000),
        help="heartbeat.interval.ms of the members",
        member_option="heartbeat_ms",
        taken_by="scenarios in which a member of a group sends several heartbeats",
    ),
    "assignor": Parameter(
        option="--assignor",
        kind="name",
        metavar="NAME",
        help="the assignor of the members: range, roundrobin, sticky, ...",
        member_option="assignors",
        taken_by="scenarios whose members join a group with any assignor",
    ),
    "static": Parameter(
        option="--static",
        kind="switch",
        help="whether the members are static, with an instance id each",
        member_option="instance",
        taken_by="scenarios whose members can be static or not",
    ),
    "commit": Parameter(
        option="--commit",
        kind="name",
        choices=("before", "after"),
        help="commit each batch by hand, before or after it is processed",
        taken_by="scenarios about the records that a member has read when it ends",
    ),
    "reset": Parameter(
        option="--reset",
        kind="name",
        choices=("latest", "earliest"),
        help="the first offset of a partition without a committed offset",
        member_option="reset",
        taken_by="scenarios in which a topic grows and either reset policy fits",
    ),
    "refresh_ms": Parameter(
        option="--refresh",
        kind="time",
        # With a refresh interval of less than 10 ms, a refresh would start before the response to the
        # previous one arrives.
        limits=(10, 3_600_000),
        help="maximum age of the client's metadata",
        member_option="metadata_ms",
        taken_by="scenarios in which a topic grows and all members refresh their metadata alike",
    ),
    "rate": Parameter(
        option="--rate",
        kind="rate",
        limits=(1, 10_000),
        help="records per second into each new partition",
        taken_by="scenarios whose result depends on the rate of records",
    ),
    "grow_at_ms": Parameter(
        option="--grow-at",
        kind="time",
        limits=(1, 600_000),
        help="the time at which the topic grows",
        taken_by="scenarios that count the records which are lost when a topic grows",
    ),
    "join_after_ms": Parameter(
        option="--join-after",
        kind="time from 0",
        limits=(0, 3_600_000),
        help="the duration of the group's first join",
        taken_by="scenarios about a program that polls while its group joins",
    ),
    "rejoin_after_ms": Parameter(
        option="--rejoin-after",
        kind="time from 0",
        limits=(0, 3_600_000),
        help="the duration of later joins",
        taken_by="scenarios about a program that polls while its group joins",
    ),
    "polls": Parameter(
        option="--polls",
        kind="count",
        limits=(1, 1_000),
        help="the number of the application's polls",
        taken_by="scenarios about a program that polls while its group joins",
    ),
    "poll_timeout_ms": Parameter(
        option="--poll-timeout",
        kind="time",
        limits=(1, 60_000),
        help="the timeout of each poll",
        taken_by="scenarios about a program that polls while its group joins",
    ),
}

# Parameters that only replace options of the members. A scenario about differences between clients or
# assignors takes `TIMEOUTS`. Any other scenario with a group takes `GROUP`.
TIMEOUTS: Final = ("session_timeout_ms", "heartbeat_ms")
GROUP: Final = (*TIMEOUTS, "assignor", "static")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of a scenario. None keeps the value in the scenario's code. Times are in milliseconds.

    `PARAMETERS` describes each parameter, except `seed`, which every scenario takes. Raises ConfigError for a
    value outside the limits.
    """

    client: str | None = None
    members: int | None = None
    partitions: int | None = None
    session_timeout_ms: int | None = None
    heartbeat_ms: int | None = None
    assignor: str | None = None
    # Whether the members are static: they have instance ids.
    static: bool | None = None
    # Whether to commit "before" or "after" the records are processed.
    commit: str | None = None
    reset: str | None = None
    refresh_ms: int | None = None
    rate: int | None = None  # The number of records per second that are written into each new partition.
    grow_at_ms: int | None = None
    join_after_ms: int | None = None
    rejoin_after_ms: int | None = None
    polls: int | None = None
    poll_timeout_ms: int | None = None
    seed: int = 7

    def __post_init__(self) -> None:
        for name, value in self.changed().items():
            row = PARAMETERS[name]
            if row.limits is not None and isinstance(value, int) and not _is_within(value, row.limits):
                minimum, maximum = row.limits
                unit = " milliseconds" if name.endswith("_ms") else ""
                raise ConfigError(name, value, f"{minimum:,} to {maximum:,}{unit}")
            if row.choices is not None and value not in row.choices:
                raise ConfigError(name, value, f"allowed: {', '.join(row.choices)}")

    def changed(self) -> dict[str, object]:
        """Map the name of each parameter that is set, except the seed, to its value."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "seed"}
        return {name: value for name, value in values.items() if value is not None}


def _is_within(value: int, limits: tuple[int, int]) -> bool:
    return limits[0] <= value <= limits[1]


def check_taken(story: str, parameters: Parameters, takes: Iterable[str], fixed: str = "") -> None:
    """Raise ConfigError if `parameters` sets a parameter that is not among `takes`.

    `story` is the scenario's id. The error lists the parameters that this scenario takes.

    The error also contains `fixed`, the scenario's reason for taking no parameter. If `fixed` is empty, the
    error says instead which scenarios take the parameter.
    """
    allowed = [name for name in PARAMETERS if name in set(takes)]
    for name, value in parameters.changed().items():
        if name not in allowed:
            options = ", ".join([*(PARAMETERS[parameter].option for parameter in allowed), "--seed"])
            why = fixed or f"only {PARAMETERS[name].taken_by} take {PARAMETERS[name].option}"
            raise ConfigError(name, written(name, value), f"{story} takes {options}; {why}")


def written(name: str, value: object) -> str:
    """Return a value as it is written on the command line, such as "30s" or "100/s"."""
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    if name.endswith("_ms"):
        return f"{value}ms" if value % 1000 else f"{value // 1000}s"
    return f"{value}/s" if name == "rate" else str(value)


def as_options(values: Mapping[str, object]) -> str:
    """Return parameters as they are written on the command line, such as "--members 3 --no-static"."""
    return " ".join(_as_option(name, value) for name, value in values.items())


def _as_option(name: str, value: object) -> str:
    option = PARAMETERS[name].option
    if PARAMETERS[name].kind == "switch":
        return option if value else option.replace("--", "--no-", 1)
    return f"{option} {written(name, value)}"
