"""Extract what happened in the worlds of a scenario's run.

The module returns moments (lines of the report's table), events for a timeline, and requests and notes for a
sequence diagram.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ..group.subscription import TopicPartition
from ..inspect.diagram_rows import Diagram, DiagramBuilder, Note
from ..inspect.exchanges import Exchange
from ..inspect.rebalance_causes import named
from ..inspect.timeline import GroupEvent, Kind
from ..messages.join_group import JoinGroupRequest
from ..messages.sync_group import SyncGroupRequest
from ..models.index import model_name
from ..testing.world import Consumer, ModelClient, Observation, World
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
    """Return the kinds of clients that took part, such as "librdkafka and kproto"."""
    kinds: list[str] = []
    for client in act.stage.clients.values():
        if isinstance(client, ModelClient):
            kinds.append(model_name(getattr(client.model, "__name__", "")))
        elif isinstance(client, Consumer):
            kinds.append("kproto")
    return " and ".join(dict.fromkeys(kinds))


def moments(run: ScenarioRun) -> list[Moment]:
    """Return the moments before the run's first world, then the moments of each world."""
    return [*run.moments, *(moment for act in run.acts for moment in moments_of(act))]


def moments_of(act: Act) -> list[Moment]:
    """Return the moments of one world, sorted by time."""
    moments = list(act.moments)
    reading: dict[tuple[str, TopicPartition], int] = {}
    owned: dict[str, set[TopicPartition]] = {}
    for index, observation in enumerate(_observations(act)):
        text = _describe_observation(observation, reading, owned.setdefault(observation.source, set()))
        if text is not None:
            moments.append(Moment(observation.at - act.started, observation.source, text, index + 0.5))
    return sorted(moments, key=lambda moment: (moment.at, moment.order))


def _observations(act: Act) -> Iterator[Observation]:
    """Yield the world's observations, with "closed" in place of "killed" for a member that was closing."""
    closing: set[str] = set()
    for observation in act.stage.observations:
        if observation.kind == "closing":
            closing.add(observation.source)
        yield (
            observation._replace(kind="closed")
            if observation.kind == "killed" and observation.source in closing
            else observation
        )


def shortened(moments: Sequence[Moment]) -> list[Moment]:
    """Shorten each sequence of commits to the first, the number of the others, and the last."""
    shown: list[Moment] = []
    for (who, key), group in groupby(enumerate(moments), lambda pair: (pair[1].who, _run_key(*pair))):
        run = [moment for _, moment in group]
        shown.append(run[0])
        if key < 0 and len(run) > 2:
            last = f"{len(run) - 1} times more; the last: {run[-1].text.removeprefix('has committed ')}"
            shown.append(Moment(run[-1].at, who, last, run[-1].order))
        else:
            shown += run[1:]
    return shown


def _run_key(number: int, moment: Moment) -> int:
    """Return the key for `groupby`: -1 for a commit, `number` for any other `Moment`.

    So `groupby` combines successive commits, and keeps each other moment separate.
    """
    return -1 if _is_commit(moment) else number


def _is_commit(moment: Moment) -> bool:
    return "has committed" in moment.text


def events(act: Act) -> list[GroupEvent]:
    """Return the events of the group's timeline.

    The generation of an assignment is included only if the world kept a trace.
    """
    requests = exchanges(act)
    generations = [
        (request.answered_at, request.client, request.request.generation_id)
        for request in requests
        if request.answered_at is not None and isinstance(request.request, SyncGroupRequest)
    ]
    events = [
        GroupEvent(
            request.asked_at - act.started, "rejoining", request.client, reason=request.request.reason or ""
        )
        for request in requests
        if isinstance(request.request, JoinGroupRequest)
    ]
    started: set[str] = set()
    events += coordinator_events(act.stage, act.started)
    for observation in _observations(act):
        kind = _KINDS.get(observation.kind)
        if kind is None or (kind == "started" and observation.source in started):
            continue
        if kind == "started":
            started.add(observation.source)
        member = "" if kind == "grown" else observation.source
        generation = -1
        if kind == "assigned":
            generation = max(
                (
                    generation_id
                    for at, client, generation_id in generations
                    if at <= observation.at and client == observation.source
                ),
                default=-1,
            )
        events.append(
            GroupEvent(observation.at - act.started, kind, member, generation, observation.partitions)
        )
    return [*events, GroupEvent(act.stage.now - act.started, "ended")] if events else []


def coordinator_events(world: World, started: int = 0) -> Iterator[GroupEvent]:
    """Yield the generations and removals that the coordinator reported, and the faults.

    Times are relative to `started`, in ms. A fault is `silent` if none of the client's requests reach a
    broker during the fault.
    """
    names, closing = world.member_names, set[str]()
    # Maps a client to its current fault, which may keep its requests from reaching the brokers.
    faults: dict[str, str] = {}
    grown: list[str] = []
    for observation in world.observations:
        at = observation.at - started
        source = observation.source if observation.source in world.clients else ""
        match observation.kind:
            case "closing" | "unsubscribed":
                closing.add(observation.source)
            case "subscribed":
                closing.discard(observation.source)
            case "generation":
                number, reasons = observation.detail
                texts = [_with_fault(reason, faults) for reason in named(reasons, names)]
                yield GroupEvent(at, "generation", "", number, (), "; ".join([*texts, *grown]))
                grown.clear()
            case "removed":
                removed: tuple[str, str] = observation.detail
                member_id, reason = removed
                name = names.get(member_id, member_id)
                if name not in closing:
                    [reason] = named([reason], names)
                    yield GroupEvent(at, "removed", name, reason=_with_fault(reason, faults))
            case "grown":
                topics = dict.fromkeys(partition.topic for partition in observation.partitions)
                grown += [f"topic {topic} has new partitions" for topic in topics]
            case "killed":
                faults[source] = "killed"
            case "frozen":
                faults[source] = f"frozen for {observation.detail / 1000:g} s"
                yield GroupEvent(at, "silent", source, reason=faults[source])
            case "fault":
                fault = observation.detail
                stops_all = fault.kind in ("stall", "drop") and fault.chance >= 1 and fault.node is None
                kind: Kind = "silent" if source and stops_all else "fault"
                where = f" with broker {fault.node}" if fault.node is not None else ""
                faults[source] = f"fault: {fault.kind}{where}"
                yield GroupEvent(at, kind, source, reason=faults[source])
            case "thawed" | "healed":
                faults.pop(source, None)
                yield GroupEvent(at, "resumed", source, reason="resumed")
            case "moved":
                yield GroupEvent(at, "fault", "", reason=observation.detail)
            case _:
                pass


def _with_fault(reason: str, faults: Mapping[str, str]) -> str:
    """Return the coordinator's reason, with the fault of a member that "sent nothing".

    `faults` maps each client to its current fault: killed, frozen, or a fault of the network.
    """
    for name, fault in faults.items():
        if name and reason.startswith(f"{name} sent nothing"):
            return f"{reason} ({fault})"
    return reason


def exchanges(act: Act) -> list[Exchange]:
    """Return the world's requests and their responses; an empty list if the world kept no trace."""
    return list(traced(act.stage.entries))


def picked(act: Act) -> Diagram | None:
    """Return the sequence diagram of a world; None without a trace or without requests."""
    builder = DiagramBuilder(lambda moment: moment.client, began=act.started)
    for exchange in exchanges(act):
        builder.add(exchange)
    # The notes leave out commits, because these are drawn as requests.
    for moment in counted(moment for moment in moments_of(act) if not _is_commit(moment)):
        at = moment.at + act.started
        who = moment.who if moment.who in act.stage.clients else ""
        builder.add_note(Note(at, who, _note_text(moment, act), moment.text in ("killed", "closed")))
    groups = {
        observation.source for observation in act.stage.observations if observation.kind == "generation"
    }
    for event in coordinator_events(act.stage, act.started):
        if event.kind == "generation" and len(groups) == 1:
            builder.add_cause(min(groups), event.generation, event.reason)
        elif event.kind in ("removed", "silent", "fault", "resumed"):
            note = Note(event.at + act.started, event.member, event.reason, event.kind == "removed")
            builder.add_note(note)
    return builder.diagram()


def counted(moments: Iterable[Moment], most: int = 2) -> list[Moment]:
    """Shorten each sequence of more than `most` identical moments of a client: replace the middle ones with a
    count.
    """
    runs: list[list[Moment]] = []
    latest_runs: dict[str, list[Moment]] = {}
    for moment in moments:
        run = latest_runs.get(moment.who)
        if run is None or run[0].text != moment.text:
            run = latest_runs[moment.who] = []
            runs.append(run)
        run.append(moment)
    shown = [moment for run in runs for moment in (run if len(run) <= most else _first_and_last(run))]
    return sorted(shown, key=lambda moment: (moment.at, moment.order))


def _first_and_last(run: list[Moment]) -> list[Moment]:
    """Return the first and the last moment of a run of moments with equal text.

    The text of the last moment begins with the number of moments that are left out.
    """
    return [run[0], replace(run[-1], text=f"... {len(run) - 2} more; {run[-1].text}")]


def _note_text(moment: Moment, act: Act) -> str:
    """Return the moment's text. A source that is not a client of the diagram is named before the text."""
    return (
        moment.text if moment.who in act.stage.clients or not moment.who else f"{moment.who}: {moment.text}"
    )


def _describe_observation(
    observation: Observation, reading: dict[tuple[str, TopicPartition], int], owned: set[TopicPartition]
) -> str | None:
    """Describe an observation in words; None for a delivery that continues the previous delivery.

    `reading` maps (member, partition) to the next offset of a contiguous read. `owned` contains the
    partitions that the member owned before the observation. Both arguments are updated.
    """
    partitions = ", ".join(map(str, sorted(observation.partitions))) or "nothing"
    match observation.kind:
        case "assigned":
            if observation.detail is not None:
                owned.intersection_update(observation.detail)
            owned_before = ", ".join(map(str, sorted(owned)))
            owned.update(observation.partitions)
            if owned_before and not observation.partitions:
                return f"is assigned nothing new, and keeps {owned_before}"
            return f"is assigned {partitions}"
        case "revoked" | "lost":
            owned.difference_update(observation.partitions)
            for tp in observation.partitions:
                reading.pop((observation.source, tp), None)
            return f"{observation.kind} {partitions}"
        case "delivered":
            (tp,) = observation.partitions
            first_offset, last_offset = observation.detail[0], observation.detail[-1]
            next_offset = reading.get((observation.source, tp))
            reading[observation.source, tp] = last_offset + 1
            continues_read = next_offset is not None and first_offset >= next_offset
            return None if continues_read else f"reads {partitions} from offset {first_offset} on"
        case "raised":
            is_message = isinstance(observation.detail, str | BaseException)
            words: tuple[str | None, ...] = (str(observation.detail),) if is_message else observation.detail
            return f"poll raises {': '.join(filter(None, words))}"
        case "sought":
            return f"seeks {partitions} to {observation.detail}"
        case "stored":
            offsets = ", ".join(
                f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in observation.detail.items()
            )
            return f"has committed {offsets}"
        case "subscribed" | "unsubscribed" | "closing" | "closed" | "killed" | "paused" | "resumed":
            return observation.kind
        case "reset":
            offset, reason = observation.detail
            return f"starts {partitions} at {offset}: {reason}"
        case _:
            return None
