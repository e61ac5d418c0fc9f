"""How a method of the public API is written once, for threads and for asyncio.

    class ClusterCalls(Shell):
        @waits
        async def coordinator(self, group: str, timeout: float | None = None) -> int: ...

        @call
        def view(self) -> ClusterView: ...

    class Cluster(ClusterCalls, Threaded): ...        # cluster.coordinator("g") -> int
    class AsyncCluster(ClusterCalls, Looped): ...     # await cluster.coordinator("g") -> int

A method that waits is an `async def` whose awaits all end in the shell's few: `_wait`, `_breathe`, `_result`,
`_finish`. In asyncio these suspend; in threads they block, so the coroutine runs to its end at the first
push. When a class says how it waits (`waiting`), its methods are made: plain functions for threads, coroutine
functions for asyncio, with the signature and the docstring that are written here once.

Before a method begins, its arguments are checked by the table in `arguments.py`, and the shell says whether
it may be called now (`_enter`, `_leave`). Methods never call each other by their public names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .other_clients import too_few, too_many, unknown_argument
from .validation import rule_of

if TYPE_CHECKING:
    from .aio.waiting import InTasks
    from .blocking.waiting import InThreads

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class waits(Generic[P, R_co]):
    """A method that may wait: blocks in a threaded shell, is awaited in one for asyncio."""

    serves = False

    def __init__(self, story: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]) -> None:
        self.story = story

    if TYPE_CHECKING:

        @overload
        def __get__(self, shell: InThreads, owner: Any = None) -> Callable[P, R_co]: ...
        @overload
        def __get__(self, shell: InTasks, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
        def __get__(self, shell: Any, owner: Any = None) -> Any: ...


class serves(waits[P, R_co]):
    """A method that also runs the application's callbacks: refused inside of one, and one at a time."""

    serves = True


class call(Generic[P, R_co]):
    """A method that never waits: the same in both kinds of shell."""

    looks = False

    def __init__(self, method: Callable[Concatenate[Any, P], R_co]) -> None:
        self.story = method

    if TYPE_CHECKING:

        def __get__(self, shell: Any, owner: Any = None) -> Callable[P, R_co]: ...


class look(call[P, R_co]):
    """A method that only says what is known: from any thread, at any time before and after the end."""

    looks = True


def spell(owner: type, how: Callable[[str, waits[Any, Any], Callable[..., Any]], Callable[..., Any]]) -> None:
    """Makes the methods of `owner`; `how` turns (name, what waits, its door) into a function."""
    for base in owner.__mro__:
        for name, value in list(vars(base).items()):
            if not isinstance(value, waits | call) or isinstance(getattr(owner, name), _Function):
                continue
            door, said = _door(value.story), name.lstrip("_")
            if isinstance(value, waits):
                waiting: waits[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
                made = how(said, waiting, door)
            elif value.looks:
                made = _looking(value.story, door)
            else:
                made = _calling(said, value.story, door)
            made.__qualname__ = f"{owner.__qualname__}.{name}"
            made.__module__ = owner.__module__
            setattr(owner, name, made)


_Function = type(spell)


def finished(story: Coroutine[Any, Any, R]) -> R:
    """What a story returns that never suspends, as in threads, where all that waits blocks."""
    try:
        story.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    story.close()
    raise RuntimeError(f"{story} did not run to its end")


def _looking(method: Callable[..., Any], door: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def looking(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = door(args, kwargs)
        self._may_look()
        return method(self, *args, **kwargs)

    return looking


def _calling(name: str, method: Callable[..., Any], door: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = door(args, kwargs)
        entered = self._enter(name, waits=False, serves=False)
        try:
            return method(self, *args, **kwargs)
        finally:
            self._leave(entered)

    return calling


def _door(story: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Checks arguments by their names; returns those to go on with. What Python refuses is left to it."""
    annotations = {name: said for name, said in story.__annotations__.items() if name != "return"}
    rules = {name: rule_of(name, said) for name, said in annotations.items()}
    names = tuple(rules)
    most = story.__code__.co_argcount - 1  # without self
    needed = names[: most - len(story.__defaults__ or ())]

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            if len(args) > most:
                raise too_many(story.__name__.lstrip("_"), args, names[:most])
            args = tuple([rules[name](name, value) for name, value in zip(names, args, strict=False)])
        if kwargs:
            if not kwargs.keys() <= rules.keys():
                raise unknown_argument(story.__name__.lstrip("_"), min(kwargs.keys() - rules.keys()), names)
            kwargs = {name: rules[name](name, value) for name, value in kwargs.items()}
        if len(args) < len(needed) and not kwargs.keys() >= set(needed[len(args) :]):
            raise too_few(story.__name__.lstrip("_"), {*names[: len(args)], *kwargs}, needed)
        return args, kwargs

    return check
