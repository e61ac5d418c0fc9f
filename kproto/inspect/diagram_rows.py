"""Select the exchanges to draw in a sequence diagram, as rows from top to bottom.

    builder = DiagramBuilder(MemberNames().of)
    builder.add(exchange)                      # each exchange, once it has ended
    builder.add_note(Note(now, "a", "killed"))
    builder.diagram()

Rules:

1. JoinGroup, SyncGroup, LeaveGroup, aborted transactions and failures are always drawn.

2. For every other API, a client's first exchange is drawn, and its first exchange after each JoinGroup. For
  Metadata and FindCoordinator, only the client's first exchange is drawn.

3. An exchange of Metadata, OffsetFetch or ListOffsets is also drawn if its response is new: it differs from
  all responses of this API that are already drawn for the client. For OffsetFetch and ListOffsets, only
  responses after the client's last JoinGroup count.

4. Successful heartbeats, fetches without records, and requests that set up a connection are counted
  but not drawn.

5. If a client's requests to an API repeatedly fail with the same response, only the first two are drawn.

6. A rebalance lasts from the first JoinGroup until each member that joined has its assignment, has left or
  was killed.

7. If more than `most` exchanges would be drawn, those in the middle are counted but not drawn. Exchanges
  that are not drawn are not kept in memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ..error_codes import ErrorCode
from .exchange_lines import is_quiet, line, request_words, response_words
from .exchanges import Exchange
from .transaction_history import aborts

Kind = Literal["ask", "answer", "error", "silence", "note", "quiet", "rebalance"]

MOST = 240  # The maximum number of exchanges that are drawn.
_DRAWN_ALWAYS = {"JoinGroup", "SyncGroup", "LeaveGroup"}
# APIs whose exchanges are drawn only if they fail.
_DRAWN_ON_FAILURE = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "Heartbeat"}
# APIs of which one exchange is drawn per client and distinct outcome.
_DRAWN_IF_NEW = {"Metadata", "OffsetFetch", "ListOffsets"}
# A client's JoinGroup makes its next exchanges count as new, except the exchanges of these two APIs.
_DRAWN_ONCE = ("Metadata", "FindCoordinator")
# A pause of at least this many ms between two rows is drawn as a separate row. This row shows the length of
# the pause, and the number of exchanges that occur during the pause but are not drawn.
_PAUSE_MS = 250
# Error codes that are not drawn as failures. The first JoinGroup of a new member gets MEMBER_ID_REQUIRED
# (KIP-394).
_NO_FAILURES = {"MEMBER_ID_REQUIRED"}
_NEVER_ENDS = 1 << 62


@dataclass(frozen=True, slots=True)
class Note:
    """An event that is not a request. It concerns the client `who`, or the cluster if `who` is empty.

    `at` is in milliseconds of the exchanges' clock. `ends_membership` is true if this event ends the client's
    membership of its group.
    """

    at: int
    who: str
    text: str
    ends_membership: bool = False


@dataclass(frozen=True, slots=True)
class DiagramRow:
    """One row of the diagram: an arrow, a note, a pause, or the start of a rebalance.

    A lane is the vertical line of a client or a broker. `who` is the client's lane, and `broker` the broker's
    lane. Both are empty for a row that spans all lanes.

    `tooltip` is shown on hover. `inside` is true if the row lies within a rebalance.
    """

    kind: Kind
    at: int
    text: str
    who: str = ""
    broker: str = ""
    tooltip: str = ""
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """A sequence diagram: its rows in order of time, and its lanes.

    `began` is the time in ms that the diagram shows as 0.
    """

    rows: list[DiagramRow]
    clients: list[str]
    brokers: list[str]
    began: int


class _RebalanceEvent(NamedTuple):
    """An event of a rebalance, derived from an exchange or a note. `order` sorts simultaneous events.

    `group` is empty if the event is derived from a note, because a note concerns all groups of the member.
    """

    at: int
    order: int
    event: Literal["joins", "generation", "synced", "gone"]
    member: str
    generation: int = -1
    group: str = ""


class _Rebalance(NamedTuple):
    """The start and end of a rebalance in ms. `generation` is -1 if the rebalance led to no generation."""

    begin: int
    end: int
    generation: int
    cause: str = ""


class DiagramBuilder:
    """Collects exchanges and notes, selects the exchanges to draw, and builds the diagram.

    `name` returns the name of the member that sent an exchange's request. `began` is the time in ms that the
    diagram shows as 0, or None for the time of the first request.
    """

    def __init__(
        self, name: Callable[[Exchange], str], *, began: int | None = None, most: int = MOST
    ) -> None:
        self._name = name
        self._began = began
        # The first and the last exchanges that are drawn. Each exchange is stored as its API and its rows.
        self._first_drawn: list[tuple[str, list[DiagramRow]]] = []
        self._last_drawn: deque[tuple[str, list[DiagramRow]]] = deque()
        self._max_per_half = max(1, most // 2)
        # The time of the request, the member and the API of each exchange that is not drawn.
        self._undrawn: list[tuple[int, str, str]] = []
        self._notes: list[Note] = []
        self._rebalance_events: list[_RebalanceEvent] = []
        self._causes: dict[tuple[str, int], str] = {}
        self._clients: dict[str, None] = {}
        # Maps each member to the keys of its drawn exchanges. The key of an exchange is its API, followed by
        # its outcome if the API is in `_DRAWN_IF_NEW`.
        self._drawn_keys: dict[str, set[str]] = {}
        # Maps a member and an API to the last outcome and the number of its consecutive occurrences.
        self._outcomes: dict[tuple[str, str], tuple[str, int]] = {}

    def add(self, exchange: Exchange) -> None:
        """Add an exchange that has ended."""
        member = self._name(exchange)
        self._clients.setdefault(member)
        if self._began is None:
            self._began = exchange.asked_at
        self._record_rebalance_events(member, exchange)
        if not self._select_exchange(member, exchange):
            self._undrawn.append((exchange.asked_at, member, exchange.api))
            return
        rows = list(_arrow_rows(member, exchange, self._began))
        if len(self._first_drawn) < self._max_per_half:
            self._first_drawn.append((exchange.api, rows))
            return
        self._last_drawn.append((exchange.api, rows))
        if len(self._last_drawn) > self._max_per_half:
            api, (request_row, *_) = self._last_drawn.popleft()
            self._undrawn.append((request_row.at, request_row.who, api))

    def add_note(self, note: Note) -> None:
        """Add an event that is not a request."""
        self._notes.append(note)
        if note.ends_membership:
            self._rebalance_events.append(_RebalanceEvent(note.at, 2, "gone", note.who))

    def add_cause(self, group: str, generation: int, cause: str) -> None:
        """Add the cause of a generation. The diagram shows it at the start of the generation's rebalance."""
        self._causes[group, generation] = cause

    def diagram(self) -> Diagram | None:
        """Return the diagram, or None if it would contain no request."""
        if self._began is None or not self._first_drawn:
            return None
        rows = [row for _, arrows in (*self._first_drawn, *self._last_drawn) for row in arrows]
        rows += [DiagramRow("note", note.at, note.text, note.who, tooltip=note.text) for note in self._notes]
        rows.sort(key=lambda row: (row.at, row.kind == "note"))
        rows_with_pauses = list(
            _with_pauses(_with_rebalances(rows, self._all_rebalances()), sorted(self._undrawn))
        )
        for member_note in self._notes:
            if member_note.who:
                self._clients.setdefault(member_note.who)
        brokers = sorted({row.broker for row in rows_with_pauses if row.broker})
        return Diagram(rows_with_pauses, list(self._clients), brokers, self._began)

    def _select_exchange(self, member: str, exchange: Exchange) -> bool:
        """Return whether to draw the exchange, and remember its outcome for the member's later exchanges."""
        outcome = (
            response_words(exchange.response, exchange.request)
            if exchange.response is not None
            else exchange.trouble
        )
        previous_outcome, repeats = self._outcomes.get((member, exchange.api), ("", 0))
        self._outcomes[member, exchange.api] = (outcome, repeats + 1 if outcome == previous_outcome else 1)
        drawn = self._drawn_keys.setdefault(member, set())
        if exchange.api == "JoinGroup":
            drawn -= {key for key in drawn if not key.startswith(_DRAWN_ONCE)}
        if failure(exchange):
            return outcome != previous_outcome or repeats < 2
        if exchange.api in _DRAWN_ALWAYS or aborts(exchange):
            return True
        if exchange.api in _DRAWN_ON_FAILURE or is_quiet(exchange):
            return False
        key = f"{exchange.api} {outcome}" if exchange.api in _DRAWN_IF_NEW else exchange.api
        is_new = key not in drawn
        drawn.add(key)
        return is_new

    def _all_rebalances(self) -> list[_Rebalance]:
        """Return the rebalances of all groups, each with the cause of its new generation."""
        groups = dict.fromkeys(event.group for event in self._rebalance_events if event.group)
        rebalances = [
            rebalance._replace(cause=self._causes.get((group, rebalance.generation), ""))
            for group in groups
            for rebalance in _rebalances_of_group(
                event for event in self._rebalance_events if event.group in ("", group)
            )
        ]
        return sorted(rebalances)

    def _record_rebalance_events(self, member: str, exchange: Exchange) -> None:
        """Record the rebalance events that follow from an exchange (a request and its response)."""
        request: Any = exchange.request
        response: Any = exchange.response
        # The empty name of a group is replaced by " ", because "" stands for all groups here.
        group = getattr(request, "group_id", None) or " "
        if exchange.api == "JoinGroup":
            self._rebalance_events.append(_RebalanceEvent(exchange.asked_at, 0, "joins", member, group=group))
            if response is not None and not response.error_code:
                at = exchange.answered_at or exchange.asked_at
                self._rebalance_events.append(
                    _RebalanceEvent(at, 1, "generation", member, response.generation_id, group)
                )
        elif exchange.api == "SyncGroup" and response is not None and not response.error_code:
            at = exchange.answered_at or exchange.asked_at
            self._rebalance_events.append(_RebalanceEvent(at, 1, "synced", member, group=group))
        elif exchange.api == "LeaveGroup":
            self._rebalance_events.append(_RebalanceEvent(exchange.asked_at, 2, "gone", member, group=group))


def failure(exchange: Exchange) -> str:
    """Return the name of a response's first error, or the reason why there is no response.

    The result is empty if the exchange succeeded.
    """
    if exchange.response is None:
        return exchange.trouble or "no answer"
    first_word = response_words(exchange.response, exchange.request).split(" ", 1)[0]
    is_error_code = first_word in ErrorCode.__members__ and first_word not in _NO_FAILURES
    return first_word if is_error_code or first_word == "error" else ""


def _arrow_rows(member: str, exchange: Exchange, began: int) -> Iterator[DiagramRow]:
    """Yield the row of the request, then the row of the response or of the missing response."""
    tooltip = line(exchange, began)
    request_text = request_words(exchange.request) if exchange.request is not None else ""
    # The text leaves out the group, because the tooltip names it.
    request_text = request_text.removeprefix(f"group={getattr(exchange.request, 'group_id', '')} ")
    yield DiagramRow(
        "ask",
        exchange.asked_at,
        f"{exchange.api} v{exchange.version} {request_text}".rstrip(),
        member,
        exchange.broker,
        tooltip,
    )
    if exchange.answered_at is None:
        yield DiagramRow(
            "silence", exchange.asked_at, exchange.trouble or "no answer", member, exchange.broker, tooltip
        )
        return
    response_text = (
        response_words(exchange.response, exchange.request)
        if exchange.response is not None
        else exchange.trouble
    )
    kind: Kind = "error" if failure(exchange) else "answer"
    yield DiagramRow(
        kind, exchange.answered_at, f"{exchange.api}: {response_text}", member, exchange.broker, tooltip
    )


def _rebalances_of_group(events: Iterable[_RebalanceEvent]) -> Iterator[_Rebalance]:
    """Yield each rebalance of a group, from the events of the group."""
    waiting: set[str] = set()
    begin, generation = 0, -1
    for at, _, event, member, number, _ in sorted(events):
        if event == "joins":
            if not waiting:
                begin, generation = at, -1
            waiting.add(member)
        elif event == "generation":
            generation = number
        elif member in waiting:  # The member has received its assignment, or has left the group.
            waiting.discard(member)
            if not waiting:
                yield _Rebalance(begin, at, generation)
    if waiting:
        yield _Rebalance(begin, _NEVER_ENDS, generation)


def _with_rebalances(rows: Iterable[DiagramRow], rebalances: Iterable[_Rebalance]) -> Iterator[DiagramRow]:
    """Mark the rows that are inside a rebalance, and add a row at the start of each rebalance."""
    pending = deque(rebalances)
    current = None
    for row in rows:
        while pending and pending[0].end < row.at:
            pending.popleft()
        inside = bool(pending) and pending[0].begin <= row.at
        if inside and current is not pending[0]:
            current = pending[0]
            target = f" to generation {current.generation}" if current.generation >= 0 else ""
            text = f"rebalance{target}: {current.cause}" if current.cause else f"rebalance{target}"
            yield DiagramRow("rebalance", row.at, text, tooltip=text, inside=True)
        yield replace(row, inside=inside)


def _with_pauses(rows: Iterable[DiagramRow], undrawn: Sequence[tuple[int, str, str]]) -> Iterator[DiagramRow]:
    """Add a row for each long pause, with its length and the number of exchanges in it that are not drawn."""
    index = 0
    previous_at: int | None = None
    for row in rows:
        if previous_at is not None and row.at - previous_at >= _PAUSE_MS:
            start = index
            while index < len(undrawn) and undrawn[index][0] < row.at:
                index += 1
            yield _pause_row(row.at - previous_at, row.at, undrawn[start:index], row.inside)
        previous_at = row.at
        yield row
    if previous_at is not None and undrawn[index:]:
        last_at = undrawn[-1][0]
        if last_at - previous_at >= _PAUSE_MS:
            yield _pause_row(last_at - previous_at, last_at, undrawn[index:], inside=False)


def _pause_row(ms: int, at: int, exchanges: Sequence[tuple[int, str, str]], inside: bool) -> DiagramRow:
    """Return the row of a pause of `ms` that ends at `at`. `exchanges` are (time, member, API)."""
    counts: dict[str, Counter[str]] = {}
    for _, member, api in exchanges:
        counts.setdefault(member, Counter())[api] += 1
    length = f"{ms / 1000:.1f} s" if ms >= 1_000 else f"{ms} ms"
    text = "; ".join(
        [f"{length} later", *(f"{member}: {_list_counts(count)}" for member, count in counts.items())]
    )
    return DiagramRow("quiet", at, text, tooltip=text, inside=inside)


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {api}" for api, number in sorted(counts.items()))
