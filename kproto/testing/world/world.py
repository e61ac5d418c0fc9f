"""Brokers and clients in virtual time: no socket, no thread, no clock, and every run repeats bit for bit.

See the package's docstring for how it is used.

Rules:
  * Everything that happens is a turn, taken from one queue ordered by time; what happens at the same
    moment happens in the order in which it was caused. A run is decided by the seed and by what is called
    on the world.
  * Clients and brokers are the real ones: what travels between them are bytes, through `network`.
  * Time is milliseconds and starts at 1,000,000. It jumps: a quiet hour costs what happens in it.
  * Nobody may stand still: 200,000 turns at one moment are an error (`Stuck`).
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, cast, overload
from uuid import UUID

from ...broker.apis.table import served
from ...broker.broker import Broker
from ...broker.call import Node
from ...broker.cluster import Cluster
from ...broker.settings import Settings
from ...errors import ConfigError, IllegalState
from ...group.assignors import Assignor
from ...group.classic.coordinator.state import ClassicGroupState
from ...group.subscription import TopicPartition
from ...validation import checked
from ...wire.message import Message
from . import journal as journals
from . import trace as traces
from .clients import Client
from .consumers import Consumer
from .exchange import Exchange
from .journal import Knob, kept, knob
from .members import Machine, Member
from .network import Fault, Network, create_fault
from .observation import Observation
from .operator import Operator
from .producers import Producer
from .user_code import check_invariant, reject_awaitable

START: Final = 1_000_000
AT_ONE_MOMENT: Final = 200_000
MOST_BROKERS: Final = 1000
DEFAULTS: Final[Mapping[str, str | int]] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
}

# Sees each request before the broker: a message answers it in the broker's place, None lets it through.
Tamper = Callable[[Client, Message, int], Message | None]
Invariant = Callable[["World"], object]
C = TypeVar("C", bound=Client)


class Stuck(AssertionError):
    """Something happens again and again, and time doesn't go on."""


class World(Operator, Exchange):
    """A cluster, a network and clients in virtual time.

    `topics` maps names to partition counts. `settings` are the brokers', under Kafka's names; the initial
    delay of groups is 0 unless they say otherwise. `seed` decides whatever is random. `brokers` is how
    many there are; their ids are 1, 2, ... `latency` is how long bytes travel one way, in ms: the least
    and the most. `trace=False` keeps no trace (`requests` neither). Raises ConfigError for settings that
    are not allowed.
    """

    tamper: Tamper | None = knob(None)

    @checked
    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str | int] | None = None,
        *,
        seed: int = 0,
        brokers: int = 1,
        latency: tuple[int, int] = (1, 1),
        trace: bool = True,
        highest: Mapping[str, int] | None = None,
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise ConfigError("brokers", brokers, f"1 to {MOST_BROKERS}")
        if not 0 <= latency[0] <= latency[1]:
            raise ConfigError("latency", latency, "the least and the most ms one way, such as (1, 5)")
        self.arguments: Final[dict[str, Any]] = {
            "topics": dict(topics or {}),
            "settings": dict(settings or {}),
            "seed": seed,
            "brokers": brokers,
            "latency": latency,
            "trace": trace,
            "highest": highest,
        }
        self.seed: Final = seed
        self.is_being_replayed = False  # by a world that plays it again: nothing may happen in this one
        self.now = START
        self.turns = 0
        self.journal: list[journals.Command] = []
        self.entries: list[traces.Entry] = []
        self.observations: list[Observation] = []
        self.requests: list[tuple[Client, Message, int]] = []
        self.clients: dict[str, Client] = {}
        self.watched_invariants: list[Invariant] = []
        self.disturbed: set[TopicPartition] = set()
        """Partitions whose logs lost records: by retention, a cut, a bad disk, a deleted topic."""
        self.marker_offsets: set[tuple[TopicPartition, int]] = set()
        """Offsets that hold no record, see `mark`."""
        self.had_fault = False
        """True once something broke: a fault, a death, a moved coordinator."""
        self.tracing = trace
        self._depth = 0
        self.ids = count(1)
        self._tokens = count(1)
        self._order = count()
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._moment = (START, 0)
        self.network = Network(Random(f"{seed}/network"), latency, lambda: self.now, self.push)
        self.settings: Final = Settings.from_properties({**DEFAULTS, **(settings or {})})
        self.apis: Final = served(highest)
        nodes = [Node(1 + n, "broker" if n == 0 else f"broker{1 + n}", 9092) for n in range(brokers)]
        self.nodes: Final = {node.id: node for node in nodes}
        self.addresses: Final = [(node.host, node.port) for node in nodes]
        self.cluster: Final = Cluster(self.settings, nodes)
        self.brokers: Final = {node.id: self.create_broker(node) for node in nodes}
        self.planned_ticks: dict[int, int | None] = dict.fromkeys(self.nodes)
        self.pending_requests: dict[int, tuple[int, int]] = {}
        self.operator_responses: dict[int, bytes | None] = {}
        """What the operator is answered, by connection."""
        with self.inside_call():
            for name, partitions in (topics or {}).items():
                self.create(name, partitions)

    # ---- who takes part

    @overload
    def join(
        self, name: str, machine: None = None, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Consumer: ...

    @overload
    def join(
        self, name: str, machine: Machine, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Member: ...

    @overload
    def join(
        self, name: str, machine: Machine | None, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Consumer | Member: ...

    @kept  # type: ignore[misc]  # by name, too; but then **options hides from pyright which one it is
    def join(
        self, name: str, machine: Machine | None = None, *, topics: Iterable[str] = (), **options: Any
    ) -> Any:
        """Start a consumer: kproto's own, or the machine of another client (a module of `kproto.models`).

        `options` are those of `consumer.Consumer`, or of `kproto.models.contract.ModelConfig`. With `topics`
        it subscribes at once. Returns the `Consumer` or `Member`. Each name is that of one process: where one
        that died comes back, `join("a-2", client_id="a")` is what the brokers take for the same client.
        """
        given: Any = topics
        alone = isinstance(given, str) or not isinstance(given, Iterable)
        several: list[Any] = [topics] if alone else list(topics)
        if not all(isinstance(one, str) for one in several):
            raise ConfigError("topics", topics, 'names of topics, as ["flights"]')
        if machine is None:
            made: Consumer | Member = Consumer(self, name, **options)
        else:
            made = Member(self, name, machine, **options)
        self._add_client(made)
        if several:
            try:
                made.subscribe(*several)
            except Exception:  # as if it had never been: its name is free
                made.alive = False
                del self.clients[name]
                raise
        return made

    @kept
    def consumer(self, **options: Any) -> Consumer:
        """One of kproto's consumers, by the name of its client_id, or "consumer-1" and so on."""
        return self._add_client(Consumer(self, self._choose_name("consumer", options), **options))

    @kept
    def producer(self, **options: Any) -> Producer:
        """One of kproto's producers, by the name of its client_id, or "producer-1" and so on."""
        return self._add_client(Producer(self, self._choose_name("producer", options), **options))

    @kept
    def kill(self, client: Client | str) -> None:
        """The process dies: its sockets close, nothing is said."""
        dying = self.client(client)
        self.had_fault = True
        dying.kill()

    def client(self, client: Client | str) -> Client:
        """The client of a name. Raises ConfigError when there is none."""
        if isinstance(client, Client):
            return client
        name: Any = client
        if not isinstance(name, str) or name not in self.clients:
            raise ConfigError("client", name, f"allowed: {', '.join(self.clients)}")
        return self.clients[name]

    def alive_clients(self, kind: type[C]) -> list[C]:
        """The clients of a kind that are alive, in the order in which they came; `Client` is every kind."""
        return [client for client in self.clients.values() if client.alive and isinstance(client, kind)]

    def _add_client(self, client: C) -> C:
        if client.name in self.clients:
            allowed = (
                "a name that no other client of this world has or had: journal and claims tell them by it"
            )
            free = repr(self._next_free_name(client.name))
            if not self.clients[client.name].alive:
                free += f" with client_id={client.name!r}, for its next process"
            raise ConfigError("name", client.name, f"{allowed}; such as {free}")
        self.clients[client.name] = client
        client.plan()
        return client

    def _choose_name(self, kind: str, options: Mapping[str, Any]) -> str:
        given = options.get("client_id")
        if given is not None and given not in self.clients:
            return str(given)
        return self._next_free_name(str(given or kind), 1)

    def _next_free_name(self, name: str, first: int = 2) -> str:
        return next(one for n in count(first) if (one := f"{name}-{n}") not in self.clients)

    # ---- time

    @checked
    def run(self, ms: int = 10_000, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, at most `ms`; with `until`, stop when it holds. True when it held (or there is
        none).
        """
        if not self.is_outside_run:
            return self._run(self.now + ms, until)
        number, turn, raised = len(self.journal), self.turns, ""

        def kept_so_far(at: int) -> None:
            took = (self.turns - turn, self.now)
            self.journal.insert(at, journals.Command(turn, "", "replay_turns", took, raised=raised))

        def holds() -> bool:
            """`until`, which may call what is kept: then that comes behind the turns so far."""
            nonlocal number, turn
            with self._outside_run():
                held = until is None or bool(reject_awaitable("until", until, until()))
            if len(self.journal) > number:
                kept_so_far(number)
                number, turn = len(self.journal), self.turns
            return held

        try:
            with self.inside_call():
                return self._run(self.now + ms, until and holds)
        except Exception as error:
            raised = type(error).__name__
            raise
        finally:
            kept_so_far(number)

    def _run(self, end: int, until: Callable[[], bool] | None) -> bool:
        queue = self._queue
        while True:
            if until is not None and until():
                return True
            if not queue or queue[0][0] > end:
                self.now = max(self.now, end)
                return until is None or until()
            self._turn()

    def replay_turns(self, turns: int, now: int) -> None:
        for _ in range(turns):
            self._turn()
        self.now = max(self.now, now)

    def _turn(self) -> None:
        at, _, what, args = heapq.heappop(self._queue)
        self.now = max(self.now, at)
        self.turns += 1
        if self._moment[0] != self.now:
            self._moment = (self.now, self.turns)
        elif self.turns - self._moment[1] > AT_ONE_MOMENT:
            raise Stuck(f"{AT_ONE_MOMENT} turns at {self.now} ms; the last one: {what!r} {args!r}"[:400])
        try:
            what(*args)
        except Exception as error:
            error.add_note(f"in turn {self.turns} at {self.now} ms of World(seed={self.seed})")
            raise

    def push(self, at: int, what: Callable[..., object], *args: Any) -> None:
        """Let something happen at a time (ms)."""
        heapq.heappush(self._queue, (at, next(self._order), what, args))

    @checked
    def call_later(self, wait: int, what: Callable[[], object]) -> None:
        """Let something happen in `wait` ms. Called from outside of a run it makes the journal unsavable, and
        code that uses this world or its clients can't be played again."""
        journals.reject_replayed_world(self, "call_later() is called")
        if self.is_outside_run:
            self.journal.append(journals.Command(self.turns, "", "call_later", (wait, what)))
        self.push(self.now + wait, lambda: reject_awaitable("what", what, what()))

    def __repr__(self) -> str:
        who = ", ".join([f"{len(self.brokers)} broker{'s' * (len(self.brokers) > 1)}", *self.clients])
        return f"<World with {who}; {self.now - START} ms have passed>"

    @property
    def is_outside_run(self) -> bool:
        """True between runs and calls: what is called now is somebody's decision."""
        return self._depth == 0

    @contextlib.contextmanager
    def _outside_run(self) -> Generator[None]:
        """Between two turns of a run."""
        depth, self._depth = self._depth, 0
        try:
            yield
        finally:
            self._depth = depth

    @contextlib.contextmanager
    def inside_call(self) -> Generator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # ---- again, and backwards

    @checked
    def replay(self, turn: int | None = None) -> World:
        """The same world once more, from its beginning up to `turn` (None: as far as this one is). Raises
        IllegalState where code given to `later` uses this world, or a client of it: another one is played.
        """
        last = self.turns if turn is None else turn
        if last > self.turns:
            raise ConfigError("turn", turn, f"a turn that was: 0 to {self.turns}")
        self.is_being_replayed = True
        try:
            return replay_commands(self.arguments, self.journal, last, self.now if turn is None else None)
        finally:
            self.is_being_replayed = False

    @checked
    def rewind(self, turns: int = 1) -> World:
        """The world as it was some turns ago; as it began, if there were not so many."""
        return self.replay(max(0, self.turns - turns))

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the journal as JSON lines, for `World.load`. Raises ConfigError when code is in it, but for
        assignors: these are kept by name. What applications do (`listener`, `worker`, `behaves`) is left out:
        in the world that is loaded they only read.
        """
        text = "".join(f"{line}\n" for line in journals.save(self.arguments, self.journal))
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        turn: int | None = None,
        *,
        assignors: Iterable[Assignor] = (),
    ) -> World:
        """Replay a journal, up to `turn`, with your own `assignors` where it has their names. Raises
        ConfigError for a file that is none.
        """
        made, commands = journals.load(Path(path).read_text(encoding="utf-8").splitlines(), assignors)
        try:
            whole = sum(command.args[0] for command in commands if command.name == "replay_turns")
            return replay_commands(made, commands, whole if turn is None else turn, None)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError("journal", os.fspath(path), f"what World.save wrote ({error})") from error

    def trace(self) -> Iterator[str]:
        """All that happened, as JSON lines."""
        return traces.lines(self.entries)

    def digest(self) -> str:
        """The trace as one number: equal for runs that are equal bit for bit."""
        return traces.digest(self.entries)

    def add_entry(self, who: str, what: str, data: Any = None) -> None:
        """One line of the trace."""
        if self.tracing:
            self.entries.append(traces.Entry(self.turns, self.now, who, what, data))

    # ---- what is seen

    @property
    def is_fault_free(self) -> bool:
        """True as long as nothing broke."""
        return not self.had_fault and self.tamper is None

    def observe(
        self, who: Client | str, what: str, partitions: Iterable[TopicPartition] = (), detail: Any = None
    ) -> None:
        """Write down what an application saw, and look at the invariants that are watched."""
        name = who if isinstance(who, str) else who.name
        self.observations.append(Observation(self.turns, self.now, name, what, tuple(partitions), detail))
        self.add_entry(name, what, (tuple(partitions), detail))
        for invariant in self.watched_invariants:
            check_invariant(invariant, self)

    @checked
    def watch(self, *invariants: Invariant) -> None:
        """Look at these whenever an application sees something; see `kproto.testing.invariants`."""
        for invariant in invariants:
            if not callable(invariant):
                raise ConfigError("invariant", invariant, "a function of a World, which raises")
        self.watched_invariants += invariants

    @checked
    def requests_of(self, client: Client | str, kind: type[Any]) -> list[Any]:
        """The requests of one kind that a client sent so far."""
        asker = self.client(client)
        return [said for whose, said, _ in self.requests if whose is asker and isinstance(said, kind)]

    @checked
    def is_stable(self, group: str) -> bool:
        found = self.cluster.classic_coordinator.groups.get(group)
        return found is not None and found.state is ClassicGroupState.STABLE

    def next_token(self) -> int:
        return next(self._tokens)

    def random_id(self) -> UUID:
        return UUID(int=next(self.ids))

    # ---- the network

    @kept
    def fault(
        self,
        kind: str,
        client: Client | str | None = None,
        node: int | None = None,
        *,
        ms: int = 0,
        chance: float = 1.0,
        lasts: int | None = None,
    ) -> Fault:
        """Something goes wrong between a client (None: all) and a broker (None: all); see `network.Fault`.

        It lasts for `lasts` ms, or until it is healed. Raises ConfigError for what there isn't.
        """
        name = None if client is None else self.client(client).name
        if node is not None:
            self._check_node(node)
        made = create_fault(kind, name, node, ms, chance)
        self.had_fault = True
        if kind == "cut":
            for wire in self.network.wires_hit_by(made):
                self.disconnect_broker(wire)
                self.disconnect_client(wire, "connection reset by peer")
        elif kind == "half_close":
            for wire in self.network.wires_hit_by(made):
                wire.up.lost = wire.down.lost = True
                self.disconnect_broker(wire)
        else:
            self.network.faults.append(made)
            if lasts is not None:
                self.push(self.now + lasts, self.network.heal, made)
        return made

    @kept
    def heal(self) -> None:
        """End all faults of the network."""
        for active in list(self.network.faults):
            self.network.heal(active)

    @checked
    def cut(self, client: Client | str) -> None:
        """Break all connections of a client."""
        self.fault("cut", client)

    def create_broker(self, node: Node) -> Broker:
        return Broker(self.settings, node, self.apis, cluster=self.cluster)

    @property
    def broker(self) -> Broker:
        """The first broker that is up. Raises IllegalState when none is."""
        for broker in self.brokers.values():
            return broker
        raise IllegalState("all brokers are down")


def replay_commands(
    made: Mapping[str, Any], commands: Iterable[journals.Command], last: int, now: int | None
) -> World:
    """A world made anew, and its calls repeated up to turn `last`."""
    given: dict[str, Any] = {**made, "latency": tuple(made["latency"])}
    world = World(**given)
    for command in list(commands):
        if command.turn > last:
            break
        if command.name == "replay_turns":
            turns, end = command.args
            whole = command.turn + turns <= last
            with world.inside_call(), _expect_error(command):
                world.replay_turns(min(turns, last - command.turn), end if whole else world.now)
            world.journal.append(command._replace(args=(min(turns, last - command.turn), world.now)))
        elif command.name == journals.SET:
            name, value = command.args
            on = world.client(command.on) if command.on else world
            if not isinstance(getattr(type(on), name, None), Knob):
                raise ConfigError("set", name, "what a journal keeps")
            setattr(on, name, _resolve_clients(world, value))
        else:
            call = getattr(world.client(command.on) if command.on else world, command.name, None)
            if not hasattr(call, journals.KEPT_MARK) and call != world.call_later:
                raise ConfigError("call", command.name, "a call that a journal keeps")
            args = [_resolve_clients(world, argument) for argument in command.args]
            kwargs = {key: _resolve_clients(world, one) for key, one in command.kwargs.items()}
            with _expect_error(command):
                cast("Any", call)(*args, **kwargs)
    if now is not None:
        world.now = max(world.now, now)
    return world


@contextlib.contextmanager
def _expect_error(command: journals.Command) -> Generator[None]:
    """What was raised the first time is raised again, and nothing else."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != command.raised:
            raise


def _resolve_clients(world: World, value: Any) -> Any:
    return world.clients[value.name] if isinstance(value, journals.ClientName) else value
