"""What happened in a story's worlds, in the order of time: as moments for a table, as events for a timeline,
as requests and notes for a sequence diagram.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ..group.subscription import TopicPartition
from ..inspect.exchanges import Exchange
from ..inspect.picking import Note, Picked, Picker
from ..inspect.timeline import GroupEvent, Kind
from ..messages.join_group import JoinGroupRequest
from ..messages.sync_group import SyncGroupRequest
from ..models.index import CLIENTS
from ..testing.world import Consumer, Member, Seen
from ..testing.world.trace import exchanges as traced
from .scenario import Act, Moment, ScenarioRun

_KINDS: dict[str, Kind] = {
    "subscribed": "started",
    "assigned": "assigned",
    "revoking": "releasing",
    "revoked": "revoked",
    "lost": "lost",
    "closed": "left",
    "killed": "killed",
    "grown": "grown",
}


def name(act: Act) -> str:
    """Whose clients took part: librdkafka, or kproto."""
    modules = {module: said for said, module in CLIENTS.items()}
    kinds: list[str] = []
    for client in act.stage.clients.values():
        if isinstance(client, Member):
            module: str = getattr(client.machine, "__name__", "").rpartition(".")[2]
            kinds.append(modules.get(module, module))
        elif isinstance(client, Consumer):
            kinds.append("kproto")
    return " and ".join(dict.fromkeys(kinds))


def moments(run: ScenarioRun) -> list[Moment]:
    """What the story says itself, and what the applications in it saw; a world behind the other."""
    return [*run.moments, *(one for act in run.acts for one in moments_of(act))]


def moments_of(act: Act) -> list[Moment]:
    """Those of one world, in the order of time."""
    found = list(act.moments)
    reading: dict[tuple[str, TopicPartition], int] = {}
    for at, one in enumerate(_seen(act)):
        what = _said(one, reading)
        if what is not None:
            found.append(Moment(one.at - act.started, one.who, what, at + 0.5))
    return sorted(found, key=lambda one: (one.at, one.order))


def _seen(act: Act) -> Iterator[Seen]:
    """What the applications saw; the end of one that was closing is no death."""
    closing: set[str] = set()
    for one in act.stage.seen:
        if one.what == "closing":
            closing.add(one.who)
        yield one._replace(what="closed") if one.what == "killed" and one.who in closing else one


def shortened(found: Sequence[Moment]) -> list[Moment]:
    """Without the middle of commits that follow each other."""
    told: list[Moment] = []
    for (who, number), group in groupby(enumerate(found), lambda pair: (pair[1].who, _run(*pair))):
        same = [one for _, one in group]
        told.append(same[0])
        if number < 0 and len(same) > 2:
            last = f"{len(same) - 1} times more; the last: {same[-1].what.removeprefix('has committed ')}"
            told.append(Moment(same[-1].at, who, last, same[-1].order))
        else:
            told += same[1:]
    return told


def _run(number: int, one: Moment) -> int:
    """Equal for commits, and for nothing else."""
    return -1 if _commits(one) else number


def _commits(one: Moment) -> bool:
    return "has committed" in one.what


def events(act: Act) -> list[GroupEvent]:
    """What the group's timeline is drawn from; generations are known where the world kept a trace."""
    asked = exchanges(act)
    made = [
        (request.answered_at, request.client, request.request.generation_id)
        for request in asked
        if request.answered_at is not None and isinstance(request.request, SyncGroupRequest)
    ]
    found = [
        GroupEvent(
            request.asked_at - act.started, "rejoining", request.client, reason=request.request.reason or ""
        )
        for request in asked
        if isinstance(request.request, JoinGroupRequest)
    ]
    started: set[str] = set()
    for one in _seen(act):
        kind = _KINDS.get(one.what)
        if kind is None or (kind == "started" and one.who in started):
            continue
        if kind == "started":
            started.add(one.who)
        member = "" if kind == "grown" else one.who
        generation = -1
        if kind == "assigned":
            generation = max((n for at, who, n in made if at <= one.at and who == one.who), default=-1)
        found.append(GroupEvent(one.at - act.started, kind, member, generation, one.partitions))
    return [*found, GroupEvent(act.stage.now - act.started, "ended")] if found else []


def exchanges(act: Act) -> list[Exchange]:
    """The requests; none where the world kept no trace."""
    return list(traced(act.stage.entries))


def picked(act: Act) -> Picked | None:
    """What a sequence diagram shows; None for a world that kept no trace, or in which nobody asked."""
    picker = Picker(lambda one: one.client, began=act.started)
    for exchange in exchanges(act):
        picker.take(exchange)
    for one in counted(one for one in moments_of(act) if not _commits(one)):  # commits are requests
        at = one.at + act.started
        who = one.who if one.who in act.stage.clients else ""
        picker.note(Note(at, who, _of(one, act), one.what in ("killed", "closed")))
    return picker.picked()


def counted(found: Iterable[Moment], most: int = 2) -> list[Moment]:
    """Of what one client says more than `most` times on end the first and the last; it counts the rest."""
    told: list[list[Moment]] = []
    last: dict[str, list[Moment]] = {}
    for one in found:
        run = last.get(one.who)
        if run is None or run[0].what != one.what:
            run = last[one.who] = []
            told.append(run)
        run.append(one)
    kept = [one for run in told for one in (run if len(run) <= most else _ends(run))]
    return sorted(kept, key=lambda one: (one.at, one.order))


def _ends(run: list[Moment]) -> list[Moment]:
    return [run[0], replace(run[-1], what=f"... {len(run) - 2} more; {run[-1].what}")]


def _of(one: Moment, act: Act) -> str:
    return one.what if one.who in act.stage.clients or not one.who else f"{one.who}: {one.what}"


def _said(one: Seen, reading: dict[tuple[str, TopicPartition], int]) -> str | None:
    """In words, what is worth telling; `reading` has the offset up to which each was told or followed."""
    partitions = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(one.partitions)) or "nothing"
    match one.what:
        case "assigned":
            return f"is assigned {partitions}"
        case "revoked" | "lost":
            for tp in one.partitions:
                reading.pop((one.who, tp), None)
            return f"{'gave back' if one.what == 'revoked' else 'lost'} {partitions}"
        case "delivered":
            (tp,) = one.partitions
            goes_on = one.detail[0] >= reading.get((one.who, tp), one.detail[0] + 1)
            reading[one.who, tp] = one.detail[-1] + 1
            return None if goes_on else f"reads {partitions} from offset {one.detail[0]} on"
        case "raised":
            whole = isinstance(one.detail, str | BaseException)
            words: tuple[str | None, ...] = (str(one.detail),) if whole else one.detail
            return f"poll raises {': '.join(filter(None, words))}"
        case "sought":
            return f"seeks {partitions} to {one.detail}"
        case "stored":
            offsets = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in one.detail.items())
            return f"has committed {offsets}"
        case "subscribed" | "unsubscribed" | "closing" | "closed" | "killed" | "paused" | "resumed":
            return one.what
        case "reset":
            offset, reason = one.detail
            return f"starts {partitions} at {offset}: {reason}"
        case _:
            return None
