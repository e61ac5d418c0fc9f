"""How records come out of the engine, and callbacks run on the way.

Rules that hold here:

* A poll that ends by anything but its records (an interrupt, a cancelled task) gives back what it took: the
  next poll returns it.
* An iteration hands out what it holds of a poll only as long as that is certainly this consumer's: a look at
  the clock before each record finds out that the process was stopped, or the machine asleep, for longer than
  the session.
* Listeners run between two steps of the engine. What one raises is raised by the call that ran it, after the
  engine was told that it returned; the assignment is what the group says. What an `events` callback raises is
  logged.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from operator import itemgetter, length_hint
from time import time
from typing import Any

import msgspec

from kproto.errors import IllegalState
from kproto.group.protocol import POLL_TIMEOUT
from kproto.group.subscription import TopicPartition

from ..addresses import addresses
from ..calls import serves
from ..clock import now, wall
from ..engine import events as ev
from ..engine.consumer import ConsumerEngine, next_deadline, step
from ..errors import again
from ..listener import RebalanceListener
from ..logs import log
from ..options import ConsumerConfig, consumer_options
from ..records import ConsumerRecord, EventCallback, GroupChange
from ..runtime import Shell

# An iteration polls for ever, so long at a time.
_ITERATION_S = 3600.0

# So often, in seconds, an iteration asks the engine whether what it holds is still its own, and tells how far
# it came: a wall clock that was set back hides a pause no longer than that. More often, if automatic commits
# are.
_SURE_S = 1.0

_TAKE_BACK = (ev.TakeBack(),)
_RETURNED = (ev.ListenerReturned(),)


class Polling(Shell):
    """An engine that is polled, by `_poll` or by an iteration's `_next`."""

    _what = "consumer"
    _alone = True

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ConsumerConfig) -> None:
        self.options = consumer_options(config)
        self._engine = ConsumerEngine(
            addresses(bootstrap_servers, self.options.security), self.options, wall=wall
        )
        self._listener: RebalanceListener | None = None
        self._callbacks: list[EventCallback] = []
        self._reports: deque[tuple[EventCallback, GroupChange]] = deque()
        # What an iteration was given, and what of it is left; where each partition's part of it begins, once
        # somebody has asked.
        self._rows: list[ConsumerRecord] = []
        self._rest: Iterator[ConsumerRecord] = iter(())
        self._parts: Parts | None = None
        # Between these moments (`time.time()`) that is certainly still this consumer's. The wall clock goes
        # on while the machine sleeps, and is the cheapest that does; it may jump, so both ends are looked at.
        self._ours_from = self._ours_until = 0.0
        self._losses = 0
        self._sure_s = _SURE_S
        if self.options.enable_auto_commit:
            self._sure_s = min(_SURE_S, max(1, self.options.auto_commit_interval_ms) / 1000)
        # What the engine has to hear before anything else: Ctrl-C came when it was to be told.
        self._owed: deque[ev.Event] = deque()
        super().__init__(
            partial(step, self._engine), partial(next_deadline, self._engine), self.options.client_id
        )

    # ---- polls, and iterations

    @serves
    async def _next(self) -> ConsumerRecord:
        """The next record of an iteration, when what is held is used up, or may be somebody else's."""
        if length_hint(self._rest):
            self._do(ev.Tick(), ev.Processed(self._held()))
            if self._still_ours():
                self._handing = True
                for record in self._rest:
                    return record
        while True:
            delivered = await self._poll(ev.Take(self.options.max_poll_records), _ITERATION_S)
            if delivered is not None:
                rest = iter(delivered.rows)
                self._rows, self._rest, self._losses = delivered.rows, rest, delivered.losses
                self._parts = None
                self._still_ours()
                for record in rest:
                    return record

    def _still_ours(self) -> bool:
        """Whether the rows that are held are this consumer's, and until when that is certain."""
        with self._locked():
            if self._engine.core.partitions.losses != self._losses:
                return False
            until = self._engine.ours_until()
            sure = self._sure_s if until is None else min(self._sure_s, (until - now()) / 1000)
            self._ours_from = time()
            self._ours_until = self._ours_from + sure
            return True

    def _feed(self, events: tuple[ev.Event, ...], last: ev.Event | None = None) -> list[ev.Action]:
        try:
            while self._owed:
                super()._feed((self._owed[0],))
                self._owed.popleft()
            return super()._feed(events, last)
        finally:
            if self._rows and self._engine.core.partitions.losses != self._losses:
                self._ours_until = 0.0

    async def _poll(self, take: ev.Take, timeout: float) -> ev.Deliver | None:
        deadline = now() + int(timeout * 1000)
        self._usable()
        self._give_back()  # before another task has its turn, whose seek comes after it
        await self._breathe()
        if not await self._called_back(deadline):
            return None
        before = self._engine.polls
        try:
            delivered = await self._take(take, deadline)
            if delivered is None:
                self._if_open(ev.PollEnded())
            self._handing = delivered is not None
            return delivered
        except Exception:
            self._if_open(ev.PollEnded())
            raise
        except BaseException:  # an interrupt, or a task that is cancelled: nobody gets what was taken
            # One that had not begun took nothing; what the one before it returned is processed.
            if self._engine.polls > before:
                self._owed += _TAKE_BACK
            self._if_open(ev.PollEnded())
            raise

    def _take_back(self) -> None:
        if self._rows:
            self._give_back(also_last=True)
        else:
            self._if_open(ev.TakeBack())

    async def _take(self, take: ev.Take, deadline: int) -> ev.Deliver | None:
        if not take.columns:
            for action in self._do(ev.Poll(take.limit)):
                if isinstance(action, ev.Deliver):
                    self._tell()
                    return action
        began: tuple[ev.Event, ...] = (ev.PollBegan(),)
        while True:
            seen = self._changes
            actions = self._do(*began, take, last=ev.PollEnded())
            began = ()
            self._tell()
            for action in actions:
                if isinstance(action, ev.Deliver):
                    return action
            if self._to_raise is not None:
                error, self._to_raise = self._to_raise, None
                raise again(error)
            if self._to_call is not None:
                await self._call(self._to_call)
            elif not await self._wait(seen, deadline):
                self._tell()
                return None

    def _in_the_child(self) -> None:
        super()._in_the_child()
        self._ours_until = 0.0

    def _if_open(self, *events: ev.Event) -> None:
        """Tells the engine, unless there is none any more. Where Ctrl-C comes, it is told before the next."""
        self._owed += events
        if not self._finished and self._crash is None and not self._forked:
            with contextlib.suppress(IllegalState):  # closed or failed just now: nobody has to be told
                self._do()

    def _give_back(self, *, also_last: bool = False) -> bool:
        """Returns what an iteration didn't come to; True when there was something."""
        if not self._rows or not self._mine():
            return False
        came = len(self._rows) - length_hint(self._rest)
        held = self._from(max(0, came - 1))
        offsets = held if also_last else self._from(came)
        owed, nothing = ev.GiveBack(offsets, held), iter(())
        self._owed += (owed,)
        self._rows, self._rest, self._parts = [], nothing, None
        self._if_open()
        return bool(offsets)

    def _held(self) -> dict[TopicPartition, int]:
        """Of each partition the first record that an iteration was given, and hasn't come to."""
        return self._from(len(self._rows) - length_hint(self._rest)) if self._rows else {}

    def _from(self, row: int) -> dict[TopicPartition, int]:
        """Of each partition the first offset from this row on. The rows are looked through once, and not each
        time."""
        if self._parts is None:
            self._parts = parts(self._rows)
        return firsts(self._rows, self._parts, row)

    # ---- callbacks

    async def _call(self, action: ev.CallListener, until: int | None = None) -> None:
        """Runs the listener; a coroutine is waited for until that moment at most, and goes on."""
        listener = self._listener
        if listener is None:
            self._to_call = None
            self._owed += _RETURNED
            self._if_open()
            return
        kind, method = {
            "assigned": ("assigned", listener.assigned),
            "revoked": ("revoked", listener.revoked),
            "lost": ("lost", listener.lost),
        }[action.kind]
        with self._calling_back(f"the listener's {kind}()"):
            returned = True
            try:
                self._to_call = None
                answer = method(action.partitions)
                if isinstance(answer, Awaitable):
                    returned = False
                    await self._finish(answer, self._returned, until)
            finally:
                if returned:
                    self._owed += _RETURNED
                    self._if_open()

    def _returned(self) -> None:
        self._if_open(*_RETURNED)

    def _note(self, change: GroupChange) -> None:
        said = change
        if change.kind == "lost" and change.reason == POLL_TIMEOUT:  # Java's words, which name no option
            limit = f"max_poll_interval_ms={self.options.max_poll_interval_ms}"
            said = msgspec.structs.replace(change, reason=f"{change.reason} ({limit})")
        super()._note(said)
        self._reports.extend([(callback, change) for callback in self._callbacks])

    def _who(self, change: GroupChange) -> str:
        member = f"member={change.member_id} " if change.member_id else ""
        return f"group={self.options.group_id} {member}" if self.options.group_id is not None else ""

    def _tell(self) -> None:
        """Calls the `events` callbacks, on the caller's thread."""
        while self._reports:
            # One that Ctrl-C ends is not called again; the others hear of the change all the same.
            callback, change = self._reports.popleft()
            with self._calling_back("a callback of events()"):
                try:
                    callback(change)
                except Exception:
                    log.exception("a callback of events() failed on %r", change.kind)

    async def _serve_until(self, future: Any, deadline: int) -> list[Exception]:
        """Runs callbacks until the future has ended, or it is `deadline`; returns what they raised."""
        failures: list[Exception] = []
        try:
            while not future.done():
                seen = self._changes
                self._do(ev.ServeListener())
                if self._to_call is not None:
                    try:
                        await self._call(self._to_call, deadline)
                    except Exception as error:
                        failures.append(error)
                elif not future.done() and not await self._wait(seen, deadline):
                    break
                self._tell()
        finally:  # who stops waiting was given no future, and hears of no end of it
            self._open.discard(future)
        if future.done() and not future.cancelled() and (told := future.exception()) is not None:
            failures.append(told)
        return failures


Parts = list[tuple[int, TopicPartition]]


def parts(records: Iterable[ConsumerRecord]) -> Parts:
    """Where the records of another partition begin; those of one stand together, mostly."""
    found: Parts = []
    last: tuple[str, int] | None = None
    for row, record in enumerate(records):
        if (place := (record.topic, record.partition)) != last:
            found.append((row, TopicPartition(*place)))
            last = place
    return found


def firsts(records: list[ConsumerRecord], parts: Parts, row: int) -> dict[TopicPartition, int]:
    """Of each partition the first offset from this row on."""
    found: dict[TopicPartition, int] = {}
    for at in range(max(0, bisect_right(parts, row, key=itemgetter(0)) - 1), len(parts)):
        start, partition = parts[at]
        first = max(start, row)
        if first < (parts[at + 1][0] if at + 1 < len(parts) else len(records)):
            found.setdefault(partition, records[first].offset)
    return found
