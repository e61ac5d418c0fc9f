"""What was done to a world, so that it can be done again: replay, and steps backwards.

Rules:
  * A world is decided by how it was made, by what was called on it and on its clients or set on them, and
    when. So that is all that is kept: each call from outside with its turn, and of each `run` how many turns
    it took.
  * What is called from inside of a run (by a listener, or by `later`) is not kept: it happens again by
    itself, as long as that code is there. `until` is asked between two turns: what it calls is kept.
  * A journal whose calls hold such code can be replayed, but not saved; of an assignor its name is saved, and
    who loads it brings the assignor. What applications do (`listener`, `worker`, `behaves`) is left out of
    what is saved.
  * A call that raised is kept, too: what it did before that is done again, and it raises the same.
  * A journal from a file can call what is kept, and nothing else.
"""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from ...errors import ConfigError, IllegalState
from ...group.assignors import Assignor
from ...group.subscription import TopicPartition
from ...validation import looker

M = TypeVar("M", bound=Callable[..., Any])
T = TypeVar("T")
KEPT_MARK = "_kept"
SET: Final = "set"
# Code that no file can hold, and without which the rest is worth keeping.
APPLICATION_CODE: Final = frozenset({"listener", "worker", "configure"})
MACHINES = "kproto.models."


class Command(NamedTuple):
    """One call: on the world (`on` is empty) or on the client of that name, when `turn` turns were over."""

    turn: int
    on: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    raised: str = ""  # The class of the exception that ended it.


class ClientName(NamedTuple):
    """A client as an argument of a call."""

    name: str


def kept(method: M) -> M:
    """A method of World or Client that goes into the journal when it is called from outside of a run. Its
    arguments are looked at first.
    """
    look = looker(method)

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        look(self, *args, **kwargs)
        world = getattr(self, "world", self)
        reject_replayed_world(world, f"{method.__name__}() is called")
        if not world.is_outside_run:
            return method(self, *args, **kwargs)
        on = "" if world is self else self.name
        number = len(world.journal)
        world.journal.append(
            Command(
                world.turns,
                on,
                method.__name__,
                tuple(_journal_value(argument) for argument in args),
                {key: _journal_value(one) for key, one in kwargs.items()},
            )
        )
        world.add_entry(on, "call", world.journal[number])
        with world.inside_call():
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                world.journal[number] = world.journal[number]._replace(raised=type(error).__name__)
                raise

    call.__dict__[KEPT_MARK] = True
    return cast("M", call)


def knob(default: T) -> T:
    """A `Knob`; type checkers see the attribute that it is to its users."""
    return cast("T", Knob(default))


class Knob(Generic[T]):
    """An attribute of World or Client that decides what happens: it goes into the journal when it is set from
    outside of a run.
    """

    __slots__ = ("_default", "_rule", "name")

    def __init__(self, default: T) -> None:
        self._default = default
        self._rule = _rule(default)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.__dict__.get(self.name, self._default)

    def __set__(self, instance: Any, value: T) -> None:
        world = getattr(instance, "world", instance)
        on = "" if world is instance else instance.name
        reject_replayed_world(world, f"{self.name} is set")
        holds, allowed = self._rule
        if not holds(value):
            raise ConfigError(self.name, value, allowed)
        instance.__dict__[self.name] = value
        if world.is_outside_run and (not on or world.clients.get(on) is instance):
            world.journal.append(Command(world.turns, on, SET, (self.name, _journal_value(value))))


def _rule(default: object) -> tuple[Callable[[object], bool], str]:
    """What a knob may be set to, by what it is unless it is set; and how that is said."""
    if isinstance(default, bool):
        return lambda value: isinstance(value, bool), "True or False"
    if isinstance(default, int):
        return (
            lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
            "a whole number, 0 or more",
        )
    if default is None:
        return lambda value: value is None or callable(value), "a function, or None"
    return callable, f"a function of ({', '.join(inspect.signature(cast('Any', default)).parameters)})"


def reject_replayed_world(world: Any, operation: str) -> None:
    """Raises IllegalState for a call on a world that another one plays again just now."""
    if world.is_being_replayed:
        raise IllegalState(
            f"{operation} on the original world during its replay: code passed to call_later() or tamper, or "
            "an application, holds the original world or one of its clients, so the replay would differ. "
            "Make the call between two run() calls, or let configure() pass each application its own client"
        )


def _journal_value(value: Any) -> Any:
    """Clients by name; what may change under us, as a copy."""
    kept_as: Any = value
    if hasattr(value, "run_when_awake") and hasattr(value, "name"):
        return ClientName(value.name)
    return copy(kept_as) if isinstance(value, dict | list | set) else value


def save(made: Mapping[str, Any], commands: Iterable[Command]) -> Iterable[str]:
    """JSON lines: how the world was made, then each call. Raises ConfigError for code among the arguments."""
    yield json.dumps({"world": _to_json(dict(made))})
    for command in commands:
        if (command.args[0] if command.name == SET else command.name) in APPLICATION_CODE:
            continue
        line = {"turn": command.turn, "on": command.on, "call": command.name}
        if command.args:
            line["args"] = _to_json(list(command.args))
        if command.kwargs:
            line["kwargs"] = _to_json(dict(command.kwargs))
        if command.raised:
            line["raised"] = command.raised
        yield json.dumps(line)


def load(lines: Iterable[str], assignors: Iterable[Assignor] = ()) -> tuple[dict[str, Any], list[Command]]:
    """What `save` wrote, with these `assignors` where it has their names. Raises ConfigError for anything
    else, and for an assignor that is missing.
    """
    own = {assignor.name: assignor for assignor in assignors}
    made: dict[str, Any] | None = None
    commands: list[Command] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "world" in entry:
                made = _from_json(entry["world"], own)
            else:
                args = tuple(_from_json(entry.get("args", []), own))
                kwargs = _from_json(entry.get("kwargs", {}), own)
                raised = entry.get("raised", "")
                commands.append(Command(entry["turn"], entry["on"], entry["call"], args, kwargs, raised))
        except ConfigError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"line {number}", line[:80], f"a line of a world's journal ({error})") from None
    if made is None:
        raise ConfigError("journal", "", 'its first line says how the world was made: {"world": {...}}')
    return made, commands


def _to_json(value: Any) -> Any:
    several: Any = value
    match value:
        case None | bool() | int() | float() | str():
            return value
        case TopicPartition(topic, partition):
            return {"$tp": [topic, partition]}
        case ClientName(name):
            return {"$client": name}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case ModuleType():
            return {"$module": value.__name__}
        case Assignor(name=name):
            return {"$assignor": name}
        case dict():
            if all(isinstance(key, str) for key in several):
                return {key: _to_json(one) for key, one in several.items()}
            return {"$map": [[_to_json(key), _to_json(one)] for key, one in several.items()]}
        case list() | tuple():
            return [_to_json(one) for one in several]
        case set() | frozenset():
            return {"$set": sorted((_to_json(one) for one in several), key=repr)}
        case _:
            raise ConfigError("argument", repr(value)[:80], "what JSON lines can hold, to save a journal")


def _from_json(value: Any, own: Mapping[str, Assignor]) -> Any:
    found: Any = value
    if isinstance(value, list):
        return [_from_json(one, own) for one in found]
    if not isinstance(value, dict):
        return found
    match found:
        case {"$tp": [topic, partition]}:
            return TopicPartition(topic, partition)
        case {"$client": name}:
            return ClientName(name)
        case {"$bytes": text}:
            return base64.b64decode(text)
        case {"$module": str(name)} if name.startswith(MACHINES):
            return importlib.import_module(name)
        case {"$assignor": str(name)}:
            if name not in own:
                raise ConfigError("assignors", sorted(own), f"with the one of the name {name!r}: it is code")
            return own[name]
        case {"$map": items}:
            return {_from_json(key, own): _from_json(one, own) for key, one in items}
        case {"$set": items}:
            return {_from_json(one, own) for one in items}
        case _:
            return {key: _from_json(one, own) for key, one in found.items()}
