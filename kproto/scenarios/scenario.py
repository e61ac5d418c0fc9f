"""Define scenarios. A scenario reproduces a claim of a document in a simulated world.

A scenario is a function with the decorator `scenario`, in one of the modules of its document:

    @scenario("S1-2", "...", says="...", given="...", when="...", then="...")
    def topic_grows(run: ScenarioRun) -> None:
        world = run.world({"t": 2})
        ...
        run.claim("the member owns the new partitions", member.owned == set(world.partitions()))

Rules:

* A scenario's claims hold with the parameters that its code sets. The tests run all scenarios and check
  `ScenarioRun.holds`.

* A user can run a scenario with other parameter values. Claims that do not hold with them are reported.

* A scenario lists its parameters in `takes`. The worlds of its run apply most of these parameters
  themselves. The scenario's code applies only the others, such as the number of members.

* Randomness comes only from the seed, and time is virtual: the same parameters give the same run.

* `says` restates, in our words, what the cited document says. `why` is our explanation of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final

from ..errors import ConfigError, KprotoError
from ..group.subscription import TopicPartition
from ..models.contract import CONSUMER_OPTIONS
from ..models.index import load_model, model_names
from ..testing.world import Consumer, ModelClient, World
from .parameters import PARAMETERS, Parameters, as_options, check_taken, written
from .story_world import StoryWorld

# Maps the prefix of a document's scenario ids to the modules with these scenarios.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "S0": ("offset_minus_1000", "offset_minus_1000_around"),
    "S1": ("new_partitions", "new_partitions_lost", "new_partitions_sarama", "new_partitions_programs"),
    "S2": ("java_reliability", "java_poll", "java_rebalances", "java_join_complete", "java_assigned"),
    "S3": ("sarama_walk", "sarama_machinery", "sarama_new_session"),
    # Scenarios about rebalances. They belong to no document.
    "S4": ("rebalances",),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the report: what `who` did, `at` ms after the start of the world.

    `order` is the number of the world's observations up to this moment. It sorts moments of the same
    millisecond.
    """

    at: int
    who: str
    text: str
    order: float = 0


@dataclass(frozen=True, slots=True)
class ScenarioClaim:
    """A statement that must hold, and whether it held in the run."""

    text: str
    holds: bool


@dataclass(slots=True)
class Act:
    """One world of a scenario run, its start time, and the moments that the scenario adds."""

    stage: World
    started: int
    moments: list[Moment] = field(default_factory=list[Moment])


@dataclass(slots=True)
class ScenarioRun:
    """One run of a scenario: the scenario's function fills it, and `report` renders it.

    With `drawn`, the worlds keep traces, so that a diagram of their requests can be drawn.

    `moments` contains the moments before the first world. Each `Act` contains the moments of its world.
    `worlds` contains all worlds of the run, including those that the report does not show.
    """

    parameters: Parameters
    drawn: bool = False
    acts: list[Act] = field(default_factory=list[Act])
    worlds: list[StoryWorld] = field(default_factory=list[StoryWorld])
    moments: list[Moment] = field(default_factory=list[Moment])
    results: dict[str, object] = field(default_factory=dict[str, object])
    claims: list[ScenarioClaim] = field(default_factory=list[ScenarioClaim])
    because: list[str] = field(default_factory=list[str])
    _replaced: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    @property
    def holds(self) -> bool:
        return bool(self.claims or not self.as_written) and all(claim.holds for claim in self.claims)

    @property
    def as_written(self) -> bool:
        """Return whether all parameters of the run have the values in the scenario's code."""
        return not self.parameters.changed()

    @property
    def changes(self) -> str:
        """Return the changed parameters of the run as command-line options; "" if none was changed."""
        return as_options(self.parameters.changed())

    @property
    def replaced(self) -> dict[str, list[Any]]:
        """Return the values that parameters have replaced: parameter -> the scenario's own values."""
        replaced: dict[str, list[Any]] = {}
        for changes in [self._replaced, *(world.replaced for world in self.worlds)]:
            for name, values in changes.items():
                known = replaced.setdefault(name, [])
                known += [value for value in values if value not in known]
        return replaced

    @property
    def stage(self) -> World | None:
        """Return the latest world, or None if no world has been created yet."""
        return self.acts[-1].stage if self.acts else None

    @property
    def started(self) -> int:
        """Return the start time of the latest world, in ms."""
        return self.acts[-1].started if self.acts else 0

    def world(
        self, topics: Mapping[str, int], settings: Mapping[str, str | int] | None = None, **options: Any
    ) -> World:
        """Create the scenario's next world. The report shows times since the world's start.

        Takes the `options` of `World` and `StoryWorld`.
        """
        world = self.hidden_world(topics, settings, **options)
        self.acts.append(Act(world, world.now))
        return world

    def hidden_world(
        self, topics: Mapping[str, int], settings: Mapping[str, str | int] | None = None, **options: Any
    ) -> World:
        """Create a world that the report does not show, for a run that is only compared with others."""
        if self.drawn:
            options["trace"] = True
        world = StoryWorld(self.parameters, topics, settings, **options)
        self.worlds.append(world)
        return world

    def clients(self, *written: str) -> tuple[str, ...]:
        """Return the clients of this run: the parameter `client` if it is set, else `written`."""
        if self.parameters.client is None:
            return written
        self._replaced["client"] = list(written)
        return (self.parameters.client,)

    def names(self, *written: str) -> tuple[str, ...]:
        """Return the members' names: `written`, or `members` names if the run has this parameter."""
        count = self.parameters.members
        if count is None:
            return written
        self._replaced["members"] = [len(written)]
        return (*written[:count], *(f"m{number}" for number in range(len(written) + 1, count + 1)))

    def longer(self, ms: int) -> int:
        """Return `ms` plus the longest delay that the run's parameters add to an expiry or a refresh."""
        return ms + (self.worlds[-1].extra_ms if self.worlds else 0)

    def moment(self, text: str, who: str = "", at: int | None = None) -> None:
        """Add a moment that no client observed: an operator's action, or a comment."""
        if not self.acts:
            self.moments.append(Moment(at or 0, who, text))
            return
        act = self.acts[-1]
        when = act.stage.now if at is None else at
        act.moments.append(Moment(when - act.started, who, text, len(act.stage.observations)))

    def grow(self, topic: str, partitions: int, which: str = "") -> None:
        """Grow a topic of the latest world, and add a moment for this change.

        `which` is appended to the text of this moment. It names the world if the scenario has several worlds.
        """
        stage = self.acts[-1].stage
        self.moment(f"the topic grows to {partitions} partitions{which}", "operator")
        stage.grow(topic, partitions)

    def result(self, name: str, value: object) -> None:
        self.results[name] = value

    def claim(self, text: str, holds: bool) -> None:
        self.claims.append(ScenarioClaim(text, holds))

    def why(self, text: str, *, of_run: bool = False) -> None:
        """Add an explanation of the result. All claims must have been added before.

        The text explains the result with the scenario's own parameters. If other parameters were set and a
        claim does not hold, the text gets the prefix "(as written)".

        With `of_run`, the text explains this run, whatever its parameters are, and never gets the prefix.
        """
        is_other = bool(self.changes) and not self.holds and not of_run
        self.because.append(f"(as written) {text}" if is_other else text)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario and its texts. `takes` names the parameters with which the scenario can be run.

    If the scenario takes no parameter, `fixed` says why.
    """

    id: str
    title: str
    says: str
    given: str
    when: str
    then: str
    takes: tuple[str, ...]
    fixed: str
    play: Callable[[ScenarioRun], None]

    def run(self, parameters: Parameters | None = None, *, drawn: bool = False) -> ScenarioRun:
        """Play the scenario and return its run.

        With `drawn`, the run keeps the traces that a diagram needs.

        Raises ConfigError for a parameter that the scenario does not take, and for a value with which the
        scenario does not reach its end.
        """
        parameters = parameters or Parameters()
        check_taken(self.id, parameters, self.takes, self.fixed)
        run = ScenarioRun(parameters, drawn)
        try:
            self.play(run)
        except (LookupError, StopIteration, ValueError) as error:
            if run.as_written or isinstance(error, KprotoError):
                raise
            name, value = next(iter(parameters.changed().items()))
            why = (
                f"{self.id} does not reach its end with {run.changes}; try a value nearer to the written one"
            )
            raise ConfigError(name, written(name, value), why) from error
        return run


_SCENARIOS: dict[str, Scenario] = {}


def scenario(
    id: str,
    title: str,
    *,
    says: str,
    given: str,
    when: str,
    then: str,
    takes: Iterable[str] = (),
    fixed: str = "",
) -> Callable[[Callable[[ScenarioRun], None]], Callable[[ScenarioRun], None]]:
    """Register a function as the scenario with this id."""
    parameters = tuple(name for name in PARAMETERS if name in set(takes))

    def enter(play: Callable[[ScenarioRun], None]) -> Callable[[ScenarioRun], None]:
        assert id not in _SCENARIOS, f"{id} is registered twice"
        _SCENARIOS[id] = Scenario(id, title, says, given, when, then, parameters, fixed, play)
        return play

    return enter


@cache
def _loaded() -> None:
    for modules in MODULES.values():
        for module in modules:
            import_module(f"{__package__}.{module}")


def _order(id: str) -> tuple[str, int, str]:
    document, _, number = id.partition("-")
    digits = "".join(character for character in number if character.isdigit())
    return document, int(digits or 0), number


def scenarios() -> list[Scenario]:
    """Return all scenarios in the order of their ids."""
    _loaded()
    return [_SCENARIOS[id] for id in sorted(_SCENARIOS, key=_order)]


def find(id: str) -> Scenario:
    """Return the scenario with this id, in upper or lower case. Raises ConfigError for an unknown id."""
    _loaded()
    match = next((known_id for known_id in _SCENARIOS if known_id.lower() == id.lower()), None)
    if match is None:
        near = [
            scenario.id for scenario in scenarios() if scenario.id.lower().startswith(id.lower()[:2])
        ] or sorted(MODULES)
        raise ConfigError("scenario", id, f"allowed: {', '.join(near)}")
    return _SCENARIOS[match]


# -- helpers of many scenarios ------------------------------------------------------------------------------


def clients() -> tuple[str, ...]:
    """Return the names of all client models, followed by kproto's own consumer."""
    return (*model_names(), "kproto")


def join(world: World, name: str, kind: str, *, topics: Iterable[str] = ("t",), **config: Any) -> Any:
    """Start a member of group g in the world, and return it.

    `config` uses the option names of the models. For kproto's own consumer, `CONSUMER_OPTIONS` translates
    these names, and options without a translation are ignored. Raises ConfigError for an unknown client.
    """
    if isinstance(world, StoryWorld):
        kind = world.kind(kind)
    if kind == "kproto":
        options = {CONSUMER_OPTIONS[key]: value for key, value in config.items() if key in CONSUMER_OPTIONS}
        return world.join(name, topics=list(topics), group_id="g", **options)
    if kind not in model_names():
        raise ConfigError("client", kind, f"allowed: {', '.join(clients())}")
    machine = load_model(kind)
    return world.join(name, machine, topics=list(topics), group_id="g", **config)


def read(member: Any, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
    """Return the partition of each record that the member received."""
    partitions: list[TopicPartition] = []
    for record in member.records:
        at = record.partition if isinstance(record.partition, TopicPartition) else record.topic_partition
        if topic in (None, at.topic) and partition in (None, at.partition):
            partitions.append(at)
    return partitions


def numbers(world: World, topic: str = "t") -> range:
    """Return the numbers of the topic's partitions."""
    return range(sum(tp.topic == topic for tp in world.partitions()))


def living_members(world: World) -> list[Any]:
    """Return the members of the world's groups whose processes are running."""
    return [*world.alive_clients(ModelClient), *world.alive_clients(Consumer)]


def is_shared_evenly(world: World) -> bool:
    """Return whether the running members own all partitions, in numbers that differ by at most one."""
    counts = [len(member.owned) for member in living_members(world)]
    return sum(counts) == len(world.partitions()) and max(counts) - min(counts) <= 1


def offsets(member: Any, tp: TopicPartition) -> list[int]:
    """Return the offsets of the member's records of one partition, in the order of delivery."""
    return [
        record.offset
        for record in member.records
        if (record.partition if isinstance(record.partition, TopicPartition) else record.topic_partition)
        == tp
    ]


def lost_and_doubled(
    world: World, members: Iterable[Any], partitions: Iterable[TopicPartition]
) -> tuple[int, int]:
    """Count the records that no member received from these partitions, and the repeated deliveries."""
    lost = doubled = 0
    for tp in partitions:
        received = [offset for member in members for offset in offsets(member, tp)]
        end = world.log(tp).end_offset
        lost += end - len({position for position in received if position < end})
        doubled += len(received) - len(set(received))
    return lost, doubled


def produce(world: World, topic: str, partitions: Iterable[int], rate: int, ms: int, every: int = 50) -> int:
    """Write `rate` records per second into each partition for `ms` of virtual time, and return their number.

    Records are written every `every` ms.
    """
    written = 0
    begun = world.now
    wanted = list(partitions)
    while world.now < begun + ms:
        due = (world.now - begun + every) * rate // 1000
        new = due - written // max(1, len(wanted))
        if new > 0:
            for partition in wanted:
                world.write(topic, partition, *(["x"] * new))
            written += new * len(wanted)
        world.run(min(every, begun + ms - world.now))
    return written
