"""Run brokers and clients in virtual time, without sockets, threads or the system clock.

The docstring of `kproto.testing.world` shows how a `World` is used. Rules:

  * Every event is a turn: a scheduled call. Turns run in the order of their times. Turns of the same
    millisecond run in the order in which they were scheduled.
  * Clients and brokers run the same engines as kproto's clients and brokers on sockets. They exchange bytes
    through `network`.
  * Time is in virtual milliseconds, and starts at 1,000,000. It jumps to the next turn, so time without
    events costs nothing. Heartbeats, fetches and polls are events even without records.
  * 200,000 turns in one millisecond raise `Stuck`, because the world makes no progress.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar, cast, overload

from ...errors import ConfigError
from ...group.assignors import Assignor
from ...group.subscription import TopicPartition
from ...lazy_imports import call_by_name, render_html
from ...models.index import Model
from ...validation import (
    FUNCTION,
    FUNCTION_WITHOUT_ARGUMENTS,
    NAME,
    NAMES_TO_NUMBERS,
    NAMES_TO_SETTINGS,
    NUMBER,
    TEXT,
    WHOLE_NUMBER,
    ZERO_OR_MORE,
    Rule,
    checked,
    has_attributes,
    is_text,
    is_whole,
    list_of,
)
from . import journal as journals
from . import trace as traces
from .clients import Client
from .consumers import Consumer
from .journal import Knob, journaled
from .members import ModelClient
from .network import Fault, create_fault
from .operator import Operator
from .producers import Producer
from .state import START
from .user_code import check_invariant, reject_awaitable

AT_ONE_MOMENT: Final = 200_000
MOST_BROKERS: Final = 1000

Invariant = Callable[["World"], object]
C = TypeVar("C", bound=Client)


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _is_client(value: Any) -> bool:
    return is_text(value) or hasattr(value, "name")


def _is_file_name(value: Any) -> bool:
    return (is_text(value) and bool(value)) or isinstance(value, os.PathLike)


# Rules of arguments.
_CLASS: Final = Rule(_is_class, "a class")
_CLIENT: Final = Rule(_is_client, "a client of this world, or its name")
_FILE_NAME: Final = Rule(_is_file_name, "a file's name")
_LATENCY: Final = Rule(list_of(is_whole, 2), "two whole numbers")
_MODEL: Final = Rule(has_attributes("start", "step", "next_deadline"), "a module such as kproto.models.java")


class Stuck(AssertionError):
    """The error for a world whose turns repeat without end while virtual time does not advance."""


class World(Operator):
    """A cluster, a network and clients in virtual time.

    `topics` maps topic names to partition counts. `settings` maps Kafka's names of broker configs to
    values. Unlike in Kafka, `group.initial.rebalance.delay.ms` is 0 by default.

    `seed` determines everything that is random. `brokers` is the number of brokers, with ids 1, 2, ...

    `latency` is the minimum and maximum one-way latency in ms. `highest` limits the API versions that brokers
    offer: a key is the name of an API, and a value is its highest version.

    With `trace=False` neither `entries` nor `requests` are recorded, which is faster. Raises ConfigError for
    settings that are not allowed.
    """

    @checked(
        topics=NAMES_TO_NUMBERS,
        settings=NAMES_TO_SETTINGS,
        seed=WHOLE_NUMBER,
        brokers=WHOLE_NUMBER,
        latency=_LATENCY,
        highest=NAMES_TO_NUMBERS,
    )
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
            raise ConfigError("latency", latency, "minimum and maximum one-way latency in ms, such as (1, 5)")
        super().__init__(
            topics, settings, seed=seed, brokers=brokers, latency=latency, trace=trace, highest=highest
        )
        self.watched_invariants: list[Invariant] = []
        with self.inside_call():
            for name, partitions in (topics or {}).items():
                self.create(name, partitions)

    # ---- clients

    @overload
    def join(
        self, name: str, model: None = None, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Consumer: ...

    @overload
    def join(
        self, name: str, model: Model, /, *, topics: Iterable[str] = (), **options: Any
    ) -> ModelClient: ...

    @overload
    def join(
        self, name: str, model: Model | None, /, *, topics: Iterable[str] = (), **options: Any
    ) -> Consumer | ModelClient: ...

    # mypy requires that `name` may be passed by keyword. Then pyright cannot resolve the overloads.
    @checked(name=NAME, model=_MODEL)  # type: ignore[misc]
    @journaled
    def join(
        self, name: str, model: Model | None = None, *, topics: Iterable[str] = (), **options: Any
    ) -> Any:
        """Start a consumer: kproto's own, or the model of another client (a module of `kproto.models`).

        `name` is unique in the world and stands for one process. To restart a process with the same client
        id, use a new name: `join("a-2", client_id="a")`.

        `options` are the options of `consumer.Consumer`, or, for a model, the fields of
        `kproto.models.contract.ModelConfig`. With `topics`, the consumer subscribes immediately.

        Returns the `Consumer`, or the `ModelClient` for a model. Raises ConfigError for a name that was used
        before and for options that are not allowed.
        """
        topics_argument: Any = topics
        is_single = isinstance(topics_argument, str) or not isinstance(topics_argument, Iterable)
        topic_names: list[Any] = [topics] if is_single else list(topics)
        if not all(isinstance(topic, str) for topic in topic_names):
            raise ConfigError("topics", topics, 'a list of topic names, such as ["flights"]')
        if model is None:
            client: Consumer | ModelClient = Consumer(self, name, **options)
        else:
            client = ModelClient(self, name, model, **options)
        self._add_client(client)
        if topic_names:
            try:
                client.subscribe(*topic_names)
            except Exception:  # The client was not created, so the caller may use its name again.
                client.alive = False
                del self.clients[name]
                raise
        return client

    @journaled
    def consumer(self, **options: Any) -> Consumer:
        """Start one of kproto's consumers. The consumer's name is its client_id, by default "consumer-1"."""
        return self._add_client(Consumer(self, self._choose_name("consumer", options), **options))

    @journaled
    def producer(self, **options: Any) -> Producer:
        """Start one of kproto's producers. The producer's name is its client_id, by default "producer-1"."""
        return self._add_client(Producer(self, self._choose_name("producer", options), **options))

    @checked(client=_CLIENT)
    @journaled
    def kill(self, client: Client | str) -> None:
        """Kill the process of a client: its connections close, and it sends nothing more."""
        victim = self.client(client)
        self.had_fault = True
        victim.kill()

    def client(self, client: Client | str) -> Client:
        """Return the client of this name. Raises ConfigError if it does not exist."""
        if isinstance(client, Client):
            return client
        name: Any = client
        if not isinstance(name, str) or name not in self.clients:
            raise ConfigError("client", name, f"allowed: {', '.join(self.clients) or 'none, before join()'}")
        return self.clients[name]

    def alive_clients(self, kind: type[C]) -> list[C]:
        """Return the running clients of this class, in the order in which they were added.

        `Client` selects clients of every class.
        """
        return [client for client in self.clients.values() if client.alive and isinstance(client, kind)]

    def _add_client(self, client: C) -> C:
        if client.name in self.clients:
            allowed = "a name that no client of this world has or had (a journal identifies clients by name)"
            suggestion = repr(self._next_free_name(client.name))
            if not self.clients[client.name].alive:
                suggestion += f" with client_id={client.name!r}, for its next process"
            raise ConfigError("name", client.name, f"{allowed}, such as {suggestion}")
        self.clients[client.name] = client
        client.plan()
        return client

    def _choose_name(self, kind: str, options: Mapping[str, Any]) -> str:
        if (client_id := options.get("client_id")) and client_id not in self.clients:
            return str(client_id)
        return self._next_free_name(str(client_id or kind), 1)

    def _next_free_name(self, name: str, first: int = 2) -> str:
        return next(name_n for n in count(first) if (name_n := f"{name}-{n}") not in self.clients)

    # ---- time

    @checked(ms=ZERO_OR_MORE, until=FUNCTION_WITHOUT_ARGUMENTS)
    def run(self, ms: int = 10_000, until: Callable[[], bool] | None = None) -> bool:
        """Let at most `ms` milliseconds pass. With `until`, stop as soon as `until` returns true.

        `until` is called between turns. Returns whether `until` was true at the end, or True without `until`.
        """
        if not self.is_outside_run:
            return self._run_until(self.now + ms, until)
        journal_index, first_turn, error_name = len(self.journal), self.turns, ""

        def add_turns_command() -> None:
            args = (self.turns - first_turn, self.now)
            command = journals.Command(first_turn, "", "replay_turns", args, raised=error_name)
            self.journal.insert(journal_index, command)

        def check_until() -> bool:
            """Return the result of `until`.

            If `until` added calls to the journal, insert the turns that ran before `until` in front of them.
            """
            nonlocal journal_index, first_turn
            with self._outside_run():
                result = until is None or bool(reject_awaitable("until", until, until()))
            if len(self.journal) > journal_index:
                add_turns_command()
                journal_index, first_turn = len(self.journal), self.turns
            return result

        try:
            with self.inside_call():
                return self._run_until(self.now + ms, until and check_until)
        except Exception as error:
            error_name = type(error).__name__
            raise
        finally:
            add_turns_command()

    def _run_until(self, end: int, until: Callable[[], bool] | None) -> bool:
        queue = self._queue
        while True:
            if until is not None and until():
                return True
            if not queue or queue[0][0] > end:
                self.now = max(self.now, end)
                return until is None or until()
            self._run_next_turn()

    def replay_turns(self, turns: int, now: int) -> None:
        """Run this many turns, then advance the time to at least `now` (ms)."""
        for _ in range(turns):
            self._run_next_turn()
        self.now = max(self.now, now)

    def _run_next_turn(self) -> None:
        """Advance time to the next turn and run it. Raises Stuck after too many turns in the same ms."""
        at, _, function, args = heapq.heappop(self._queue)
        self.now = max(self.now, at)
        self.turns += 1
        if self._ms_and_first_turn[0] != self.now:
            self._ms_and_first_turn = (self.now, self.turns)
        elif self.turns - self._ms_and_first_turn[1] > AT_ONE_MOMENT:
            raise Stuck(f"{AT_ONE_MOMENT} turns at {self.now} ms; the last one: {function!r} {args!r}"[:400])
        try:
            function(*args)
        except Exception as error:
            error.add_note(f"in turn {self.turns} at {self.now} ms of World(seed={self.seed})")
            raise

    @checked(wait=ZERO_OR_MORE, function=FUNCTION_WITHOUT_ARGUMENTS)
    def call_later(self, wait: int, function: Callable[[], object]) -> None:
        """Call `function()` in `wait` ms.

        If this method is called between two runs, the call is journaled. The journal then contains a function
        and cannot be saved. `replay` works only if `function` does not use this world or its clients.
        """
        journals.reject_replayed_world(self, "call_later() is called")
        if self.is_outside_run:
            self.journal.append(journals.Command(self.turns, "", "call_later", (wait, function)))
        self.push(self.now + wait, lambda: reject_awaitable("function", function, function()))

    def __repr__(self) -> str:
        members = ", ".join([f"{len(self.brokers)} broker{'s' * (len(self.brokers) > 1)}", *self.clients])
        return f"<World with {members}; {self.now - START} ms have passed>"

    def _repr_html_(self) -> str:
        """Return the timeline of the group as HTML, for display in a notebook."""
        return render_html("kproto.scenarios.notebook:timeline", self)

    def play(self) -> Any:
        """Return a slider that chooses the end of the timeline. Raises MissingExtra without ipywidgets."""
        return call_by_name("kproto.scenarios.notebook:slider", self)

    # ---- replay

    @checked(turn=ZERO_OR_MORE)
    def replay(self, turn: int | None = None) -> World:
        """Return a new world that replays this one up to `turn` (None: all turns).

        Raises IllegalState if a function that was passed to `call_later()` uses this world or its clients.
        """
        last_turn = self.turns if turn is None else turn
        if last_turn > self.turns:
            raise ConfigError("turn", turn, f"a turn of this world: 0 to {self.turns}")
        now = self.now if turn is None else None
        self.is_being_replayed = True
        try:
            return replay_commands(self.arguments, self.journal, last_turn, now)
        finally:
            self.is_being_replayed = False

    @checked(turns=ZERO_OR_MORE)
    def rewind(self, turns: int = 1) -> World:
        """Return a new world in the state that this world had `turns` turns ago.

        If this world has run fewer than `turns` turns, the new world is in the initial state.
        """
        return self.replay(max(0, self.turns - turns))

    @checked(path=_FILE_NAME)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the journal to `path` as JSON lines, for `World.load`.

        Assignors are saved by name. The callbacks of applications (`listener`, `worker`, `configure`) are not
        saved, so the applications of a loaded world only read records. Raises ConfigError if the journal
        contains any other function.
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
        """Load a journal that `save` wrote and replay it up to `turn` (None: all turns).

        `assignors` replace the saved assignors of the same names. Raises ConfigError if the file is not a
        journal, or if `assignors` lacks an assignor that it names.
        """
        arguments, commands = journals.load(Path(path).read_text(encoding="utf-8").splitlines(), assignors)
        try:
            last_turn = sum(command.args[0] for command in commands if command.name == "replay_turns")
            return replay_commands(arguments, commands, last_turn if turn is None else turn, None)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            allowed = f"a file written by World.save ({error})"
            raise ConfigError("journal", os.fspath(path), allowed) from error

    def trace(self) -> Iterator[str]:
        """Return all events and actions so far, as JSON lines."""
        return traces.lines(self.entries)

    def digest(self) -> str:
        """Return a hash of the trace. Identical runs have equal hashes."""
        return traces.digest(self.entries)

    # ---- observations

    def observe(
        self, source: Client | str, kind: str, partitions: Iterable[TopicPartition] = (), detail: Any = None
    ) -> None:
        """Record an observation, then check the watched invariants."""
        super().observe(source, kind, partitions, detail)
        for invariant in self.watched_invariants:
            check_invariant(invariant, self)

    @checked(invariants=FUNCTION)
    def watch(self, *invariants: Invariant) -> None:
        """Check these invariants after each observation; see `kproto.testing.invariants`."""
        for invariant in invariants:
            if not callable(invariant):
                allowed = "a function that takes a World and raises if the invariant is broken"
                raise ConfigError("invariant", invariant, allowed)
        self.watched_invariants += invariants

    @checked(client=_CLIENT, kind=_CLASS)
    def requests_of(self, client: Client | str, kind: type[Any]) -> list[Any]:
        """Return the requests of class `kind` that the client has sent so far. Needs `trace=True`."""
        sender = self.client(client)
        return [
            request for origin, request, _ in self.requests if origin is sender and isinstance(request, kind)
        ]

    @checked(group=TEXT)
    def is_stable(self, group: str) -> bool:
        """Return whether the group exists and is in the state Stable."""
        description = self.cluster.coordinator.describe(group)
        return description is not None and description.state == "Stable"

    # ---- the network

    @checked(kind=TEXT, client=_CLIENT, node=WHOLE_NUMBER, ms=ZERO_OR_MORE, chance=NUMBER, lasts=ZERO_OR_MORE)
    @journaled
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
        """Start a network fault between a client (None: all) and a broker (None: all).

        `Fault` describes `kind`, `ms` and `chance`. The fault ends after `lasts` ms (None: never), or when
        `heal` is called. Raises ConfigError for an unknown kind, client or node.
        """
        client_name = None if client is None else self.client(client).name
        if node is not None:
            self._check_node(node)
        new_fault = create_fault(kind, client_name, node, ms, chance)
        self.had_fault = True
        self.observe(client_name or "operator", "fault", detail=new_fault)
        if kind == "cut":
            for wire in self.network.wires_hit_by(new_fault):
                self.disconnect_broker(wire)
                self.disconnect_client(wire, "connection reset by peer")
        elif kind == "half_close":
            for wire in self.network.wires_hit_by(new_fault):
                wire.up.lost = wire.down.lost = True
                self.disconnect_broker(wire)
        else:
            self.network.faults.append(new_fault)
            if lasts is not None:
                self.push(self.now + lasts, self._heal, new_fault)
        return new_fault

    @journaled
    def heal(self) -> None:
        """End all network faults."""
        for fault in list(self.network.faults):
            self._heal(fault)

    def _heal(self, fault: Fault) -> None:
        if fault in self.network.faults:
            self.observe(fault.client or "operator", "healed", detail=fault)
            self.network.heal(fault)

    @checked(client=_CLIENT)
    def cut(self, client: Client | str) -> None:
        """Close all connections of a client."""
        self.fault("cut", client)


def replay_commands(
    arguments: Mapping[str, Any], commands: Iterable[journals.Command], last: int, now: int | None
) -> World:
    """Return a new world that repeats `commands` up to turn `last`, and then lets time pass until `now`."""
    world_arguments: dict[str, Any] = {**arguments, "latency": tuple(arguments["latency"])}
    world = World(**world_arguments)
    for command in list(commands):
        if command.turn > last:
            break
        if command.name == "replay_turns":
            turns, end = command.args
            replayed_turns = min(turns, last - command.turn)
            with world.inside_call(), _expect_error(command):
                world.replay_turns(replayed_turns, end if replayed_turns == turns else world.now)
            world.journal.append(command._replace(args=(replayed_turns, world.now)))
        elif command.name == journals.SET:
            name, value = command.args
            target = world.client(command.on) if command.on else world
            if not isinstance(getattr(type(target), name, None), Knob):
                raise ConfigError("set", name, "an attribute whose changes a journal records")
            setattr(target, name, _resolve_client(world, value))
        else:
            call = getattr(world.client(command.on) if command.on else world, command.name, None)
            if not hasattr(call, journals.KEPT_MARK) and call != world.call_later:
                raise ConfigError("call", command.name, "a method whose calls a journal records")
            args = [_resolve_client(world, argument) for argument in command.args]
            kwargs = {key: _resolve_client(world, value) for key, value in command.kwargs.items()}
            with _expect_error(command):
                cast("Any", call)(*args, **kwargs)
    if now is not None:
        world.now = max(world.now, now)
    return world


@contextlib.contextmanager
def _expect_error(command: journals.Command) -> Generator[None]:
    """Suppress an exception if this command raised one of the same class in the original run."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != command.raised:
            raise


def _resolve_client(world: World, value: Any) -> Any:
    """Return the client of a journaled client name. Any other value is returned unchanged."""
    return world.clients[value.name] if isinstance(value, journals.ClientName) else value
