"""What of many exchanges is worth a picture: the rows of a sequence diagram, from top to bottom.

Rules
1. JoinGroup, SyncGroup, LeaveGroup, and whatever fails are drawn. Of each other API, a client's first is,
   and again the first behind each of its JoinGroups; Metadata also where it says something new.
2. Heartbeats that are fine, fetches without records, and what introduces a connection are only counted. What
   fails in the same way time and again is drawn twice, then counted.
3. A rebalance lasts from the first JoinGroup until each who has joined has its part, has left or has died.
4. Of more than `most` exchanges the middle is left out, and counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..error_codes import ErrorCode
from .exchange_lines import error_name, is_quiet, line, request_words, response_words
from .exchanges import Exchange

Kind = Literal["ask", "answer", "error", "silence", "note", "quiet", "rebalance"]

MOST = 240
"""Exchanges that are drawn."""
_ALWAYS = {"JoinGroup", "SyncGroup", "LeaveGroup"}
_NEVER = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "Heartbeat"}
_PAUSE = 250
"""So long (ms) must nothing be drawn before it is said what went on meanwhile."""
_EXPECTED = {ErrorCode.MEMBER_ID_REQUIRED}
"""Errors that are part of a conversation that goes well."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a client (or, with an empty `who`, to the cluster), and no request."""

    at: int
    who: str
    text: str
    over: bool = False
    """It is no member any more."""


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
    """Rows in the order of time, and who has a lane: `clients` and `brokers`. `began` is the time of 0.000."""

    rows: list[Row]
    clients: list[str]
    brokers: list[str]
    began: int


def pick(
    exchanges: Iterable[Exchange],
    notes: Iterable[Note] = (),
    *,
    name: Callable[[Exchange], str],
    began: int | None = None,
    most: int = MOST,
) -> Picked:
    """The rows for these exchanges; `name` says whose one is, `began` is the moment 0 (the first exchange)."""
    found = sorted(exchanges, key=lambda one: one.asked_at)
    named = [(name(one), one) for one in found]
    noted = sorted(notes, key=lambda one: one.at)
    zero = began if began is not None else min([one.asked_at for one in found] + [one.at for one in noted])
    drawn, counted = _choose(named, most)
    rows = _phased(_in_time([*_arrows(drawn, zero), *_notes(noted)]), named, noted)
    told = list(_with_quiet(rows, counted))
    clients = list(dict.fromkeys([who for who, _ in named] + [one.who for one in noted if one.who]))
    brokers = list(dict.fromkeys(row.broker for row in told if row.broker))
    return Picked(told, clients, sorted(brokers), zero)


def _choose(
    named: Sequence[tuple[str, Exchange]], most: int
) -> tuple[list[tuple[str, Exchange]], list[tuple[str, Exchange]]]:
    """What is drawn, and what is counted."""
    drawn: list[tuple[str, Exchange]] = []
    counted: list[tuple[str, Exchange]] = []
    seen: dict[str, set[str]] = {}
    last: dict[tuple[str, str], tuple[str, int]] = {}
    for who, one in named:
        error = failure(one)
        said = response_words(one.response, one.request) if one.response is not None else one.trouble
        before, times = last.get((who, one.api), ("", 0))
        last[who, one.api] = (said, times + 1 if said == before else 1)
        known = seen.setdefault(who, set())
        if error and error not in {error_name(code) for code in _EXPECTED}:
            wanted = said != before or times < 2
        elif one.api in _ALWAYS:
            wanted = True
        elif one.api in _NEVER or is_quiet(one):
            wanted = False
        else:
            wanted = one.api not in known or (one.api == "Metadata" and said != before)
            known.add(one.api)
        if one.api == "JoinGroup":
            known -= {*known} - {"Metadata", "FindCoordinator"}
        (drawn if wanted else counted).append((who, one))
    if len(drawn) > most:
        half = most // 2
        counted += drawn[half:-half]
        drawn = [*drawn[:half], *drawn[-half:]]
    return drawn, counted


def failure(exchange: Exchange) -> str:
    """The error that an answer has at its top or in its first place that has one; what went wrong without."""
    response: Any = exchange.response
    if response is None:
        return exchange.trouble
    told = response_words(response, exchange.request).split(" ", 1)[0]
    return told if told in ErrorCode.__members__ or told == "error" else ""


def _arrows(drawn: Iterable[tuple[str, Exchange]], zero: int) -> Iterator[Row]:
    for who, one in drawn:
        told = line(one, zero)
        asked = request_words(one.request) if one.request is not None else ""
        yield Row("ask", one.asked_at, f"{one.api} v{one.version} {asked}".rstrip(), who, one.broker, told)
        if one.answered_at is None:
            yield Row("silence", one.asked_at, one.trouble or "no answer", who, one.broker, told)
            continue
        said = response_words(one.response, one.request) if one.response is not None else one.trouble
        error = failure(one)
        kind: Kind = "error" if error and error not in {error_name(code) for code in _EXPECTED} else "answer"
        yield Row(kind, one.answered_at, f"{one.api}: {said}", who, one.broker, told)


def _notes(notes: Iterable[Note]) -> Iterator[Row]:
    for one in notes:
        yield Row("note", one.at, one.text, one.who, told=one.text)


def _in_time(rows: Iterable[Row]) -> list[Row]:
    """By time; an answer of one moment comes behind its request, a note behind the answer that caused it."""
    return sorted(rows, key=lambda row: (row.at, row.kind == "note"))


def _phased(
    rows: Sequence[Row], named: Iterable[tuple[str, Exchange]], notes: Iterable[Note]
) -> Iterator[Row]:
    """The rows with rebalances marked, each with a row of its own at its beginning."""
    phases = deque(_rebalances(named, notes))
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


def _rebalances(
    named: Iterable[tuple[str, Exchange]], notes: Iterable[Note]
) -> Iterator[tuple[int, int, int]]:
    """When each began and ended, and the generation that it made (-1: none)."""
    moments: list[tuple[int, int, str, str, int]] = [
        (note.at, 2, "gone", note.who, -1) for note in notes if note.over
    ]
    for who, one in named:
        response: Any = one.response
        end = one.answered_at if one.answered_at is not None else one.asked_at
        failed = response is None or response.error_code if one.api in _ALWAYS else 0
        if one.api == "JoinGroup":
            moments.append((one.asked_at, 0, "joins", who, -1))
            if not failed:
                moments.append((end, 1, "made", who, response.generation_id))
        elif one.api == "SyncGroup" and not failed:
            moments.append((end, 1, "synced", who, -1))
        elif one.api == "LeaveGroup":
            moments.append((one.asked_at, 1, "gone", who, -1))
    waiting: set[str] = set()
    begin, generation = 0, -1
    for at, _, what, who, number in sorted(moments):
        if what == "joins":
            if not waiting:
                begin, generation = at, -1
            waiting.add(who)
        elif what == "made":
            generation = number
        elif waiting:
            waiting.discard(who)
            if not waiting:
                yield begin, at, generation
    if waiting:
        yield begin, 1 << 62, generation


def _with_quiet(rows: Iterable[Row], counted: Sequence[tuple[str, Exchange]]) -> Iterator[Row]:
    """Between rows that are far apart: how long it was quiet, and what went on."""
    waiting = sorted(counted, key=lambda pair: pair[1].asked_at)
    at = 0
    before: int | None = None
    for row in rows:
        if before is not None and row.at - before >= _PAUSE:
            behind = at
            while at < len(waiting) and waiting[at][1].asked_at < row.at:
                at += 1
            yield _quiet(before, row, waiting[behind:at])
        before = row.at
        yield row
    if before is not None and waiting[at:]:
        last = max(one.asked_at for _, one in waiting[at:])
        if last - before >= _PAUSE:
            yield _quiet(before, Row("quiet", last, ""), waiting[at:])


def _quiet(before: int, row: Row, went: Sequence[tuple[str, Exchange]]) -> Row:
    counts: dict[str, Counter[str]] = {}
    for who, one in went:
        counts.setdefault(who, Counter())[one.api] += 1
    told = [f"{who}: {_counted(count)}" for who, count in counts.items()]
    seconds = f"{(row.at - before) / 1000:.1f} s" if row.at - before >= 1_000 else f"{row.at - before} ms"
    text = "; ".join([f"{seconds} later", *told])
    return Row("quiet", row.at, text, told=text, inside=row.inside)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {api}" for api, number in sorted(counts.items()))

