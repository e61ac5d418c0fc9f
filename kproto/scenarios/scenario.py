"""What a scenario is: an entry of a document as data, and one function that plays it in a world.

Adding one is one decorated function in the document's module:

    @scenario("S1-2", "...", says="...", given="...", when="...", then="...")
    def grows(told: ScenarioRun) -> None:
        world = told.world({"t": 2})
        ...
        told.claim("the member owns the new partitions", member.owned == set(world.partitions()))

Rules that hold here:

* A scenario claims what must come out; the test of the collection runs all of them and checks `holds`.
  A value that depends on the parameters is a result, not a claim.
* Nothing is drawn but from the seed, and time is virtual: the same parameters tell the same story.
* `says` is what the document says, in our words; `why` is our explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final, cast

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..models.contract import OURS
from ..models.index import available, client
from ..testing.world import World
from ..testing.world.machines import Machine

# The documents, by the beginning of their ids, and the modules that tell them.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "S0": ("offset_minus_1000", "offset_minus_1000_around"),
    "S1": ("new_partitions", "new_partitions_lost", "new_partitions_sarama", "new_partitions_programs"),
    "S2": ("java_reliability", "java_poll", "java_rebalances", "java_join_complete", "java_assigned"),
    "S3": ("sarama_walk", "sarama_machinery", "sarama_new_session"),
}


# What a story can be told with before whoever asked has gone for coffee: the least and the most.
LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "refresh_ms": (10, 3_600_000),  # not sooner than an answer comes
    "rate": (1, 10_000),
    "grow_at_ms": (1, 600_000),
    "join_after_ms": (0, 3_600_000),
    "rejoin_after_ms": (0, 3_600_000),
    "polls": (1, 1_000),
    "poll_timeout_ms": (1, 60_000),
    "members": (1, 200),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What may be changed about a story; None leaves it as the document has it. Times are milliseconds.

    Raises ConfigError for what is outside of `LIMITS`.
    """

    client: str | None = None
    reset: str | None = None
    refresh_ms: int | None = None
    rate: int | None = None  # Records a second, into each new partition.
    grow_at_ms: int | None = None
    join_after_ms: int | None = None
    rejoin_after_ms: int | None = None
    polls: int | None = None
    poll_timeout_ms: int | None = None
    members: int | None = None
    seed: int = 7

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            given = getattr(self, name)
            if given is not None and not least <= given <= most:
                unit = " milliseconds" if name.endswith("_ms") else ""
                raise ConfigError(name, given, f"{least:,} to {most:,}{unit}")


@dataclass(frozen=True, slots=True)
class Moment:
    """Who did what, at a time after the beginning (ms). `order` is how much had been seen by then."""

    at: int
    who: str
    what: str
    order: float = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What has to come out, and whether it did."""

    text: str
    holds: bool


@dataclass(slots=True)
class Act:
    """One run within a telling: its world, when that began, and what nobody in it saw."""

    stage: World
    started: int
    moments: list[Moment] = field(default_factory=list[Moment])


@dataclass(slots=True)
class ScenarioRun:
    """One telling of a scenario: filled by its function, read by the teller.

    `drawn`: the worlds keep their traces, for a picture of the requests. `moments` are those of a story
    without a world; each world has its own.
    """

    parameters: Parameters
    drawn: bool = False
    acts: list[Act] = field(default_factory=list[Act])
    moments: list[Moment] = field(default_factory=list[Moment])
    results: dict[str, object] = field(default_factory=dict[str, object])
    claims: list[Claim] = field(default_factory=list[Claim])
    because: list[str] = field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        return bool(self.claims or not self.as_written) and all(claim.holds for claim in self.claims)

    @property
    def as_written(self) -> bool:
        """Nothing about the story was changed."""
        return not _changed(self.parameters)

    @property
    def stage(self) -> World | None:
        """The latest world."""
        return self.acts[-1].stage if self.acts else None

    @property
    def started(self) -> int:
        """When the latest world began (ms)."""
        return self.acts[-1].started if self.acts else 0

    def world(
        self, topics: Mapping[str, int], settings: Mapping[str, str | int] | None = None, **options: Any
    ) -> World:
        """The story's world, or its next one; its beginning is moment 0."""
        if self.drawn:
            options["trace"] = True
        made = World(topics, settings, seed=self.parameters.seed, **options)
        self.acts.append(Act(made, made.now))
        return made

    def moment(self, what: str, who: str = "", at: int | None = None) -> None:
        """Something that nobody in the world saw: an operator's act, a thought."""
        if not self.acts:
            self.moments.append(Moment(at or 0, who, what))
            return
        act = self.acts[-1]
        when = act.stage.now if at is None else at
        act.moments.append(Moment(when - act.started, who, what, len(act.stage.seen)))

    def grow(self, topic: str, partitions: int, which: str = "") -> None:
        """A topic of the latest world gets more partitions; `which` is of several worlds' growths."""
        stage = self.acts[-1].stage
        self.moment(f"the topic grows to {partitions} partitions{which}", "operator")
        stage.grow(topic, partitions)

    def result(self, name: str, value: object) -> None:
        self.results[name] = value

    def claim(self, text: str, holds: bool) -> None:
        self.claims.append(Claim(text, holds))

    def why(self, text: str) -> None:
        self.because.append(text)


@dataclass(frozen=True, slots=True)
class Scenario:
    """An entry of a document. `takes` names the parameters that change its ending."""

    id: str
    title: str
    says: str
    given: str
    when: str
    then: str
    takes: tuple[str, ...]
    play: Callable[[ScenarioRun], None]

    def run(self, parameters: Parameters | None = None, *, drawn: bool = False) -> ScenarioRun:
        """Play it; `drawn` keeps what a picture needs. Raises ConfigError for what it doesn't take."""
        said = parameters or Parameters()
        for name in _changed(said):
            if name not in self.takes:
                allowed = ", ".join((*self.takes, "seed"))
                raise ConfigError(name, getattr(said, name), f"{self.id} takes: {allowed}")
        told = ScenarioRun(said, drawn)
        self.play(told)
        return told


def _changed(parameters: Parameters) -> list[str]:
    plain = Parameters()
    names = [one for one in Parameters.__dataclass_fields__ if one != "seed"]
    return [name for name in names if getattr(parameters, name) != getattr(plain, name)]


_FOUND: dict[str, Scenario] = {}


def scenario(
    id: str,
    title: str,
    *,
    says: str,
    given: str,
    when: str,
    then: str,
    takes: Iterable[str] = (),
) -> Callable[[Callable[[ScenarioRun], None]], Callable[[ScenarioRun], None]]:
    """Enter a function as the scenario of this id."""

    def enter(play: Callable[[ScenarioRun], None]) -> Callable[[ScenarioRun], None]:
        assert id not in _FOUND, f"{id} is there twice"
        _FOUND[id] = Scenario(id, title, says, given, when, then, tuple(takes), play)
        return play

    return enter


@cache
def _loaded() -> None:
    for modules in MODULES.values():
        for module in modules:
            import_module(f"{__package__}.{module}")


def _order(id: str) -> tuple[str, int, str]:
    document, _, number = id.partition("-")
    digits = "".join(one for one in number if one.isdigit())
    return document, int(digits or 0), number


def scenarios() -> list[Scenario]:
    """All scenarios, in the order of their ids."""
    _loaded()
    return [_FOUND[id] for id in sorted(_FOUND, key=_order)]


def find(id: str) -> Scenario:
    """The scenario of an id, in any case. Raises ConfigError for one that there isn't."""
    _loaded()
    found = next((one for one in _FOUND if one.lower() == id.lower()), None)
    if found is None:
        near = [
            scenario.id for scenario in scenarios() if scenario.id.lower().startswith(id.lower()[:2])
        ] or sorted(MODULES)
        raise ConfigError("scenario", id, f"allowed: {', '.join(near)}")
    return _FOUND[found]


# -- what many stories need -------------------------------------------------------------------------------

CLIENTS: Final = ("java", "java-2.6", "sarama", "sarama-cluster", "kafka-go", "librdkafka")


def clients() -> tuple[str, ...]:
    """The clients that can take part in this release, kproto's own last."""
    return (*(name for name in CLIENTS if name in available()), "kproto")


def join(world: World, name: str, kind: str, *, topics: Iterable[str] = ("t",), **config: Any) -> Any:
    """A member of a client, by the drivers' words; for kproto's own they are its options.

    Raises ConfigError for a client that this release doesn't have.
    """
    if kind == "kproto":
        options = {OURS[key]: value for key, value in config.items() if key in OURS}
        return world.join(name, topics=list(topics), group_id="g", **options)
    if kind not in available():
        raise ConfigError("client", kind, f"allowed: {', '.join(clients())}")
    machine = cast("Machine", client(kind))
    return world.join(name, machine, topics=list(topics), group_id="g", **config)


def read(member: Any, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
    """The partition of each record that a member was given."""
    found: list[TopicPartition] = []
    for record in member.records:
        at = record.partition if isinstance(record.partition, TopicPartition) else record.topic_partition
        if topic in (None, at.topic) and partition in (None, at.partition):
            found.append(at)
    return found


def offsets(member: Any, tp: TopicPartition) -> list[int]:
    """The offsets of a partition that a member was given, in the order in which it was."""
    return [
        record.offset
        for record in member.records
        if (record.partition if isinstance(record.partition, TopicPartition) else record.topic_partition)
        == tp
    ]


def lost_and_doubled(
    world: World, members: Iterable[Any], partitions: Iterable[TopicPartition]
) -> tuple[int, int]:
    """Of what stands in these partitions: how much nobody was given, and how often something came again."""
    lost = doubled = 0
    for tp in partitions:
        given = [offset for member in members for offset in offsets(member, tp)]
        end = world.log(tp).end_offset
        lost += end - len({one for one in given if one < end})
        doubled += len(given) - len(set(given))
    return lost, doubled


def produce(world: World, topic: str, partitions: Iterable[int], rate: int, ms: int, every: int = 50) -> int:
    """Write `rate` records a second into each of these partitions for `ms` of virtual time; how many in all.

    They are written every `every` ms while time passes in here.
    """
    written = 0
    begun = world.now
    wanted = list(partitions)
    while world.now < begun + ms:
        due = (world.now - begun + every) * rate // 1000
        new = due - written // max(1, len(wanted))
        if new > 0:
            for one in wanted:
                world.write(topic, one, *(["x"] * new))
            written += new * len(wanted)
        world.run(min(every, begun + ms - world.now))
    return written
