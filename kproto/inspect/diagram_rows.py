"""What of many exchanges is worth a picture: the rows of a sequence diagram, from top to bottom.

    picker = Picker(Names().of)
    picker.take(exchange)                      # each, when it is over
    picker.note(Note(now, "a", "killed"))
    picker.picked()

Rules
1. JoinGroup, SyncGroup, LeaveGroup, transactions given up, and whatever fails are drawn. Of each other API, a
   client's first is, and again the first behind each of its JoinGroups; of what tells offsets and metadata,
   each new answer.
2. Heartbeats that are fine, fetches without records, and what introduces a connection are only counted. What
   fails in the same way time and again is drawn twice, then counted.
3. A rebalance lasts from the first JoinGroup until each who has joined has its part, has left or has died.
4. Of more than `most` exchanges the middle is left out, and counted. Only what is drawn is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..error_codes import ErrorCode
from .exchange_lines import is_quiet, line, request_words, response_words
from .exchanges import Exchange
from .transaction_history import aborts

Kind = Literal["ask", "answer", "error", "silence", "note", "quiet", "rebalance"]

MOST = 240  # Exchanges that are drawn.
_ALWAYS = {"JoinGroup", "SyncGroup", "LeaveGroup"}
_NEVER = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "Heartbeat"}
_NEWS = {"Metadata", "OffsetFetch", "ListOffsets"}  # What tells something else each time.
_ONCE = ("Metadata", "FindCoordinator")  # What is not news behind a JoinGroup.
_PAUSE = 250  # So long (ms) must nothing be drawn before it is said what went on meanwhile.
_FINE = {"MEMBER_ID_REQUIRED"}  # Errors of conversations that go well.
_NEVER_ENDS = 1 << 62


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a client (or, with an empty `who`, to the cluster), and no request.

    `at` is milliseconds of the exchanges' clock. `gone`: it is no member any more.
    """

    at: int
    who: str
    text: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture. `who` is a client's lane, `broker` the other one's; both are empty for what
    spans all. `told` is what it says when pointed at. `inside`: while a rebalance goes on."""

    kind: Kind
    at: int
    text: str
    who: str = ""
    broker: str = ""
    told: str = ""
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows in the order of time, and who has a lane. `began` is the moment 0 (ms)."""

    rows: list[Row]
    clients: list[str]
    brokers: list[str]
    began: int


class Picker:
    """Takes exchanges and notes, and keeps what is drawn. `name` says whose an exchange is.

    `began` is the moment 0 in ms; None: when the first request was asked.
    """

    def __init__(
        self, name: Callable[[Exchange], str], *, began: int | None = None, most: int = MOST
    ) -> None:
        self._name = name
        self._began = began
        self._first: list[tuple[str, list[Row]]] = []
        self._last: deque[tuple[str, list[Row]]] = deque()
        self._half = max(1, most // 2)
        self._counted: list[tuple[int, str, str]] = []
        self._notes: list[Note] = []
        self._turns: list[tuple[int, int, str, str, int]] = []
        self._clients: dict[str, None] = {}
        self._seen: dict[str, set[str]] = {}
        self._said: dict[tuple[str, str], tuple[str, int]] = {}

    def take(self, exchange: Exchange) -> None:
        """One that is over."""
        who = self._name(exchange)
        self._clients.setdefault(who)
        if self._began is None:
            self._began = exchange.asked_at
        self._turn(who, exchange)
        if not self._wanted(who, exchange):
            self._counted.append((exchange.asked_at, who, exchange.api))
            return
        rows = list(_arrows(who, exchange, self._began))
        if len(self._first) < self._half:
            self._first.append((exchange.api, rows))
            return
        self._last.append((exchange.api, rows))
        if len(self._last) > self._half:
            api, left_out = self._last.popleft()
            self._counted.append((left_out[0].at, left_out[0].who, api))

    def note(self, note: Note) -> None:
        """Something else that happened."""
        self._notes.append(note)
        if note.gone:
            self._turns.append((note.at, 2, "gone", note.who, -1))

    def picked(self) -> Picked | None:
        """The rows; None when nobody asked anything."""
        if self._began is None or not self._first:
            return None
        rows = [row for _, arrows in (*self._first, *self._last) for row in arrows]
        rows += [Row("note", note.at, note.text, note.who, told=note.text) for note in self._notes]
        rows.sort(key=lambda row: (row.at, row.kind == "note"))
        told = list(_with_quiet(_phased(rows, _rebalances(self._turns)), sorted(self._counted)))
        for one in self._notes:
            if one.who:
                self._clients.setdefault(one.who)
        brokers = sorted({row.broker for row in told if row.broker})
        return Picked(told, list(self._clients), brokers, self._began)

    def _wanted(self, who: str, one: Exchange) -> bool:
        said = response_words(one.response, one.request) if one.response is not None else one.trouble
        before, times = self._said.get((who, one.api), ("", 0))
        self._said[who, one.api] = (said, times + 1 if said == before else 1)
        known = self._seen.setdefault(who, set())
        if one.api == "JoinGroup":
            known -= {one for one in known if not one.startswith(_ONCE)}
        if failure(one):
            return said != before or times < 2
        if one.api in _ALWAYS or aborts(one):
            return True
        if one.api in _NEVER or is_quiet(one):
            return False
        news = f"{one.api} {said}" if one.api in _NEWS else one.api
        new = news not in known
        known.add(news)
        return new

    def _turn(self, who: str, one: Exchange) -> None:
        """What an exchange means for a rebalance: when, its order at that moment, what, who, generation."""
        response: Any = one.response
        if one.api == "JoinGroup":
            self._turns.append((one.asked_at, 0, "joins", who, -1))
            if response is not None and not response.error_code:
                self._turns.append((one.answered_at or one.asked_at, 1, "made", who, response.generation_id))
        elif one.api == "SyncGroup" and response is not None and not response.error_code:
            self._turns.append((one.answered_at or one.asked_at, 1, "synced", who, -1))
        elif one.api == "LeaveGroup":
            self._turns.append((one.asked_at, 1, "gone", who, -1))


def failure(exchange: Exchange) -> str:
    """The first error of an answer by its name, or why there is none; empty for what went well."""
    if exchange.response is None:
        return exchange.trouble or "no answer"
    told = response_words(exchange.response, exchange.request).split(" ", 1)[0]
    return told if (told in ErrorCode.__members__ and told not in _FINE) or told == "error" else ""


def _arrows(who: str, one: Exchange, began: int) -> Iterator[Row]:
    told = line(one, began)
    asked = request_words(one.request) if one.request is not None else ""
    asked = asked.removeprefix(f"group={getattr(one.request, 'group_id', '')} ")  # it is in `told`
    yield Row("ask", one.asked_at, f"{one.api} v{one.version} {asked}".rstrip(), who, one.broker, told)
    if one.answered_at is None:
        yield Row("silence", one.asked_at, one.trouble or "no answer", who, one.broker, told)
        return
    said = response_words(one.response, one.request) if one.response is not None else one.trouble
    kind: Kind = "error" if failure(one) else "answer"
    yield Row(kind, one.answered_at, f"{one.api}: {said}", who, one.broker, told)


def _rebalances(turns: Iterable[tuple[int, int, str, str, int]]) -> Iterator[tuple[int, int, int]]:
    """When each began and ended, and the generation that it made (-1: none)."""
    waiting: set[str] = set()
    begin, generation = 0, -1
    for at, _, what, who, number in sorted(turns):
        if what == "joins":
            if not waiting:
                begin, generation = at, -1
            waiting.add(who)
        elif what == "made":
            generation = number
        elif who in waiting:
            waiting.discard(who)
            if not waiting:
                yield begin, at, generation
    if waiting:
        yield begin, _NEVER_ENDS, generation


def _phased(rows: Iterable[Row], rebalances: Iterable[tuple[int, int, int]]) -> Iterator[Row]:
    """The rows with rebalances marked, each with a row of its own at its beginning."""
    phases = deque(rebalances)
    told = None
    for row in rows:
        while phases and phases[0][1] < row.at:
            phases.popleft()
        inside = bool(phases) and phases[0][0] <= row.at
        if inside and told is not phases[0]:
            told = phases[0]
            made = f" to generation {told[2]}" if told[2] >= 0 else ""
            yield Row("rebalance", row.at, f"rebalance{made}", inside=True)
        yield replace(row, inside=inside)


def _with_quiet(rows: Iterable[Row], counted: Sequence[tuple[int, str, str]]) -> Iterator[Row]:
    """Between rows that are far apart: how long it was quiet, and what went on."""
    at = 0
    before: int | None = None
    for row in rows:
        if before is not None and row.at - before >= _PAUSE:
            behind = at
            while at < len(counted) and counted[at][0] < row.at:
                at += 1
            yield _quiet(row.at - before, row.at, counted[behind:at], row.inside)
        before = row.at
        yield row
    if before is not None and counted[at:] and counted[-1][0] - before >= _PAUSE:
        yield _quiet(counted[-1][0] - before, counted[-1][0], counted[at:], False)


def _quiet(ms: int, at: int, went: Sequence[tuple[int, str, str]], inside: bool) -> Row:
    counts: dict[str, Counter[str]] = {}
    for _, who, api in went:
        counts.setdefault(who, Counter())[api] += 1
    length = f"{ms / 1000:.1f} s" if ms >= 1_000 else f"{ms} ms"
    text = "; ".join([f"{length} later", *(f"{who}: {_counts(count)}" for who, count in counts.items())])
    return Row("quiet", at, text, told=text, inside=inside)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {api}" for api, number in sorted(counts.items()))
