"""The journal of a world: the data that is needed to replay the world.

Rules:

* A world is determined by its arguments, the calls on it and on its clients, and the times of these calls.

* The journal keeps each call between two runs, with the number of turns before the call. For each `run` it
  keeps the number of turns that the run took.

* Calls during a run (by a listener, or by a function of `call_later`) are not kept, because the replay
  repeats them. Calls by `until` are kept, because `until` runs between two turns.

* A journal can be replayed, but not saved, if the argument of a call is a function, as in `call_later`. This
  does not apply to assignors and the code of applications:

* An assignor is saved by its name. `World.load` needs the assignor as an argument.

* The code of applications (`listener`, `worker`, `configure`) is not saved. A loaded world runs without it.

* Calls that raised an exception are kept, too. The replay repeats such a call and expects the same exception.

* A replay raises ConfigError for a call of a method, or a change of an attribute, that no journal records.
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

M = TypeVar("M", bound=Callable[..., Any])
T = TypeVar("T")
# The attribute by which a replay recognizes a journaled method.
KEPT_MARK = "_kept"
# The name of the command that sets an attribute of a client or of the world.
SET: Final = "set"
# The attributes that hold the application's code. A saved journal leaves them out.
APPLICATION_CODE: Final = frozenset({"listener", "worker", "configure"})
# The package of the modules that a saved journal may import.
MACHINES = "kproto.models."


class Command(NamedTuple):
    """One call on the world (`on` is empty) or on the client named `on`.

    The call was made after `turn` turns (events) of the world.
    """

    turn: int
    on: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    raised: str = ""  # The class of the exception that the call raised; "" without an exception.


class ClientName(NamedTuple):
    """The name that the journal stores for a client that is an argument of a call."""

    name: str


def journaled(method: M) -> M:
    """Decorate a method of World or Client, so that each call outside a run is recorded in the journal.

    The command is recorded before the call. If the call raises an exception, its class is added afterwards.

    Place the decorator `checked` above this one, so that a call with invalid arguments is not journaled.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        world = getattr(self, "world", self)
        reject_replayed_world(world, f"{method.__name__}() is called")
        if not world.is_outside_run:
            return method(self, *args, **kwargs)
        on = "" if world is self else self.name
        index = len(world.journal)
        world.journal.append(
            Command(
                world.turns,
                on,
                method.__name__,
                tuple(_journal_value(argument) for argument in args),
                {key: _journal_value(value) for key, value in kwargs.items()},
            )
        )
        world.add_entry(on, "call", world.journal[index])
        with world.inside_call():
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                world.journal[index] = world.journal[index]._replace(raised=type(error).__name__)
                raise

    call.__dict__[KEPT_MARK] = True
    return cast("M", call)


def knob(default: T) -> T:
    """Return a `Knob` with this default. Type checkers see the type of the attribute's value instead of
    `Knob`.
    """
    return cast("T", Knob(default))


class Knob(Generic[T]):
    """An attribute of World or Client that affects runs. The journal keeps each change between two runs."""

    __slots__ = ("_default", "_value_check", "name")

    def __init__(self, default: T) -> None:
        self._default = default
        self._value_check = _value_check(default)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.__dict__.get(self.name, self._default)

    def __set__(self, instance: Any, value: T) -> None:
        world = getattr(instance, "world", instance)
        on = "" if world is instance else instance.name
        reject_replayed_world(world, f"{self.name} is set")
        is_allowed, allowed_text = self._value_check
        if not is_allowed(value):
            raise ConfigError(self.name, value, allowed_text)
        instance.__dict__[self.name] = value
        # A client is not registered yet while its constructor sets its attributes.
        is_registered = not on or world.clients.get(on) is instance
        if world.is_outside_run and is_registered:
            world.journal.append(Command(world.turns, on, SET, (self.name, _journal_value(value))))


def _value_check(default: object) -> tuple[Callable[[object], bool], str]:
    """Return a function that checks a value of a `Knob`, and a description of the allowed values.

    The allowed values depend on the type of `default`. The description becomes part of an error message.
    """
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
    """Raise IllegalState if another world is currently replaying this one."""
    if world.is_being_replayed:
        raise IllegalState(
            f"{operation} on the original world during its replay: code passed to call_later() or tamper, or "
            "an application, holds the original world or one of its clients, so the replay would differ. "
            "Make the call between two run() calls, or let configure() pass each application its own client"
        )


def _journal_value(value: Any) -> Any:
    """Return an argument as the journal keeps it: the name of a client, or a copy of a collection."""
    argument: Any = value
    # `Client` itself cannot be imported here, because its module imports this one.
    is_client = hasattr(value, "run_when_awake") and hasattr(value, "name")
    if is_client:
        return ClientName(value.name)
    return copy(argument) if isinstance(value, dict | list | set) else value


def save(arguments: Mapping[str, Any], commands: Iterable[Command]) -> Iterable[str]:
    """Yield the journal as JSON lines: the arguments of the world, then each call.

    Raises ConfigError if an argument is a function or another object with code, which a journal cannot
    contain.
    """
    yield json.dumps({"world": _to_json(dict(arguments))})
    for command in commands:
        method_or_attribute = command.args[0] if command.name == SET else command.name
        if method_or_attribute in APPLICATION_CODE:
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
    """Read the output of `save`: the arguments of the world, and its commands.

    `save` writes only the names of assignors, and `assignors` supplies the assignors of these names. Raises
    ConfigError if an assignor is missing, or if a line does not have the form that `save` writes.
    """
    assignors_by_name = {assignor.name: assignor for assignor in assignors}
    arguments: dict[str, Any] | None = None
    commands: list[Command] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "world" in entry:
                arguments = _from_json(entry["world"], assignors_by_name)
            else:
                args = tuple(_from_json(entry.get("args", []), assignors_by_name))
                kwargs = _from_json(entry.get("kwargs", {}), assignors_by_name)
                raised = entry.get("raised", "")
                commands.append(Command(entry["turn"], entry["on"], entry["call"], args, kwargs, raised))
        except ConfigError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"line {number}", line[:80], f"a line of a world's journal ({error})") from None
    if arguments is None:
        raise ConfigError("journal", "", 'a first line with the arguments of the world: {"world": {...}}')
    return arguments, commands


def _to_json(value: Any) -> Any:
    """Return an argument as a JSON value. A type that JSON lacks becomes a dict with one key, such as "$tp".

    Raises ConfigError for a value that the journal cannot contain, such as a function.
    """
    collection: Any = value
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
            if all(isinstance(key, str) for key in collection):
                return {key: _to_json(element) for key, element in collection.items()}
            return {"$map": [[_to_json(key), _to_json(element)] for key, element in collection.items()]}
        case list() | tuple():
            return [_to_json(element) for element in collection]
        case set() | frozenset():
            return {"$set": sorted((_to_json(element) for element in collection), key=repr)}
        case _:
            raise ConfigError(
                "argument",
                repr(value)[:80],
                "a value that JSON can hold, because the journal is saved as JSON",
            )


def _from_json(value: Any, assignors: Mapping[str, Assignor]) -> Any:
    """Return the argument that `_to_json` has written as this JSON value.

    Raises ConfigError for an assignor that is not in `assignors`.
    """
    parsed: Any = value
    if isinstance(value, list):
        return [_from_json(element, assignors) for element in parsed]
    if not isinstance(value, dict):
        return parsed
    match parsed:
        case {"$tp": [topic, partition]}:
            return TopicPartition(topic, partition)
        case {"$client": name}:
            return ClientName(name)
        case {"$bytes": text}:
            return base64.b64decode(text)
        case {"$module": str(name)} if name.startswith(MACHINES):
            return importlib.import_module(name)
        case {"$assignor": str(name)}:
            if name not in assignors:
                raise ConfigError(
                    "assignors",
                    sorted(assignors),
                    f"an assignor named {name!r}: its code is not in the journal",
                )
            return assignors[name]
        case {"$map": items}:
            return {_from_json(key, assignors): _from_json(element, assignors) for key, element in items}
        case {"$set": items}:
            return {_from_json(element, assignors) for element in items}
        case _:
            return {key: _from_json(element, assignors) for key, element in parsed.items()}
