"""`kproto scenario`: the stories of the documents, listed, told, drawn, and with other endings."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import Commands, duration, positive, rate, some_time, whole, write

if TYPE_CHECKING:
    from ..scenarios import Parameters, Scenario


# What people write for each of `Parameters`.
OPTIONS: dict[str, str] = {
    "client": "--client",
    "reset": "--reset",
    "refresh_ms": "--refresh",
    "rate": "--rate",
    "grow_at_ms": "--grow-at",
    "join_after_ms": "--join-after",
    "rejoin_after_ms": "--rejoin-after",
    "polls": "--polls",
    "poll_timeout_ms": "--poll-timeout",
    "members": "--members",
    "seed": "--seed",
}
# What is no single story, and the parameters that it takes.
_MATRICES = {
    "loss": ("client", "reset", "refresh_ms", "rate", "grow_at_ms"),
    "stop-the-world": ("members",),
    "race": (),
}
FORMS = ("--requests", "--html", "--svg")  # How a single story may be told.


def add(commands: Commands) -> None:
    scenario = commands.add_parser(
        "scenario",
        help="stories of groups and their clients in virtual time, most in well under a second",
        description="Without a name: list all stories with a line each; with the beginning of their ids (S1) "
        "or a word of their titles (sarama): list those. With an id (S1-20): run it and tell what happened, "
        "what came out, and why. `loss`: how many records clients lose when a topic grows. "
        "`stop-the-world`: how long partitions stand still when a member comes, eager beside cooperative. "
        "`race`: how a program that subscribes and assigns ends, by when its group is through. "
        "Exit code 1 if something did not come out as it has to.",
        epilog="Times are written 400ms, 4s, 10m; rates 100/s. A story that doesn't take a parameter says "
        "which it takes; `kproto scenario --json` lists them all.",
    )
    scenario.add_argument("name", nargs="?", metavar="ID", help="such as S1-20, or loss, or stop-the-world")
    scenario.add_argument("--client", metavar="NAME", help="whose machine: sarama, kafka-go, ..., or kproto")
    scenario.add_argument(
        "--reset", choices=("latest", "earliest"), help="where a partition without a commit starts"
    )
    scenario.add_argument("--refresh", type=some_time, metavar="TIME", help="how old metadata may become")
    scenario.add_argument(
        "--rate", type=rate, metavar="N/s", help="records a second, into each new partition"
    )
    scenario.add_argument("--grow-at", type=some_time, metavar="TIME", help="when the topic grows")
    scenario.add_argument(
        "--join-after", type=duration, metavar="TIME", help="how long the group's join takes"
    )
    scenario.add_argument(
        "--rejoin-after", type=duration, metavar="TIME", help="how long a member's next join takes"
    )
    scenario.add_argument("--polls", type=positive, metavar="N", help="how often the application polls")
    scenario.add_argument("--poll-timeout", type=some_time, metavar="TIME", help="how long each poll waits")
    scenario.add_argument("--members", type=positive, metavar="N", help="how many members there are")
    scenario.add_argument(
        "--seed", type=whole, default=7, metavar="N", help="decides what is random (default: 7)"
    )
    form = scenario.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--requests", action="store_true", help="the requests and answers, a line for each")
    form.add_argument(
        "--html", type=Path, metavar="FILE", help="a page with the group's timeline and its requests"
    )
    form.add_argument("--svg", type=Path, metavar="FILE", help="the requests as a picture of its own")
    scenario.set_defaults(run=_scenario)


def _scenario(options: argparse.Namespace) -> int:
    try:
        return _named(options)
    except ConfigError as error:
        raise ConfigError(OPTIONS.get(error.option, error.option), error.value, error.allowed) from None


def _named(options: argparse.Namespace) -> int:
    from ..scenarios import scenarios

    name = options.name
    if name is None:
        return _list(options, list(scenarios()))
    if name in _MATRICES:
        _refuse(options, name, _MATRICES[name], FORMS)
        return _MATRIX[name](options)
    found = [scenario for scenario in scenarios() if scenario.id.lower() == name.lower()]
    if found:
        return _tell(options, found[0])
    word = name.lower()
    several = [
        scenario
        for scenario in scenarios()
        if scenario.id.lower().startswith(f"{word}-") or word in scenario.title.lower()
    ]
    if not several:
        raise ConfigError("scenario", name, _hint(name))
    return _list(options, several)


def _hint(name: str) -> str:
    """What somebody may have meant."""
    from ..scenarios import scenarios

    ids = [scenario.id for scenario in scenarios()]
    names = {id_.lower(): id_ for id_ in (*ids, *_MATRICES)}
    near = difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.7)
    hint = f"did you mean {' or '.join(names[one] for one in near)}? " if near else ""
    documents = ", ".join(dict.fromkeys(id_.partition("-")[0] for id_ in ids))
    every = f"{hint}there are {len(ids)} stories of the documents {documents} (`kproto scenario` lists them)"
    return f"{every}, and {', '.join(_MATRICES)}"


def _refuse(options: argparse.Namespace, name: str, takes: Sequence[str], never: Sequence[str] = ()) -> None:
    """Raises ConfigError for a parameter that this doesn't take, or a form that it can't be told in."""
    from ..scenarios.scenario import clients

    said = _parameters(options)
    allowed = ", ".join(OPTIONS[one] for one in (*takes, "seed"))
    for field, option in OPTIONS.items():
        given = getattr(said, field)
        if given is not None and field not in (*takes, "seed"):
            told = f"{given}ms" if field.endswith("_ms") else str(given)
            raise ConfigError(option, told, f"{name} takes {allowed}")
    if said.client is not None and said.client not in clients():
        raise ConfigError("--client", said.client, f"allowed: {', '.join(clients())}")
    for option in never:
        if given := getattr(options, option[2:]):
            raise ConfigError(
                option, str(given), f"it tells a single story, such as kproto scenario S1-20 {option} ..."
            )


def _parameters(options: argparse.Namespace) -> Parameters:
    from ..scenarios import Parameters

    words = {field: getattr(options, option[2:].replace("-", "_")) for field, option in OPTIONS.items()}
    return Parameters(**words)


def _list(options: argparse.Namespace, several: Sequence[Scenario]) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import report

    _refuse(options, "a list", (), FORMS)
    for found in several:
        if options.json:
            takes = [OPTIONS[one] for one in (*found.takes, "seed")]
            print(one_line({"id": found.id, "title": found.title, "takes": takes}))
        else:
            print("\n".join(report.fitted([report.line(found)], _width())))
    return 0


def _width() -> int | None:
    """The columns of the terminal, or what COLUMNS says; None where lines may have any length."""
    return shutil.get_terminal_size((0, 0)).columns or None


def _note(text: str) -> None:
    """A paragraph below a table."""
    from ..scenarios import report

    print("\n".join(["", *report.paragraph(text, _width())]))


def _tell(options: argparse.Namespace, found: Scenario) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import report

    _refuse(options, found.id, found.takes)
    told = found.run(_parameters(options), drawn=bool(options.html or options.svg or options.requests))
    if options.json:
        print(one_line(report.json(found, told)))
    elif options.html:
        write("--html", options.html, report.page(found, told))
        print(f"{options.html}: {found.title}")
    elif options.svg:
        write("--svg", options.svg, report.svg(told))
        print(f"{options.svg}: {found.title}")
    elif options.requests:
        print("\n".join(report.requests(told)))
    else:
        print("\n".join(report.text(found, told, _width())))
    return 0 if told.holds else 1


def _loss(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import matrices, report

    rows: list[tuple[object, ...]] = []
    safe = True
    for loss in matrices.losses(_parameters(options)):
        safe = safe and (loss.client != "kproto" or loss.lost + loss.doubled == 0)
        seen = "never" if loss.seen_after_ms is None else f"{loss.seen_after_ms / 1000:.1f} s"
        if options.json:
            figures = {name: getattr(loss, name) for name in loss.__slots__}
            print(one_line({**figures, "formula": loss.formula}), flush=True)
        else:
            print(f"{loss.client} {loss.detection}, {loss.reset}: done", file=sys.stderr)
        rows.append(
            (
                loss.client,
                loss.detection,
                loss.reset,
                seen,
                loss.written,
                loss.lost,
                loss.formula,
                loss.doubled,
            )
        )
    if not options.json:
        head = ("client", "growth", "reset", "seen after", "written", "lost", "formula", "read twice")
        print("\n".join(report.grid(head, rows, _width())))
        _note(
            "formula: rate x new partitions x the time until they were assigned; nothing where those start "
            "at their beginning; everything where they are never seen"
        )
        said = _parameters(options)
        _note(
            f"assumed: one member, whose topic grows from 2 partitions to 4 after "
            f"{(said.grow_at_ms or matrices.GROW_AT_MS) / 1000:g} s; {said.rate or matrices.RATE} records a "
            f"second go into each new one; metadata is refreshed every "
            f"{(said.refresh_ms or matrices.REFRESH_MS) / 1000:g} s, heartbeats go out every "
            f"{matrices.HEARTBEAT_MS / 1000:g} s"
        )
    return 0 if safe else 1


def _stop_the_world(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import matrices, report

    sizes = (options.members,) if options.members else (3, 10, 100)
    rows: list[tuple[object, ...]] = []
    for standstill in matrices.standstills(sizes, seed=options.seed):
        if options.json:
            print(one_line({name: getattr(standstill, name) for name in standstill.__slots__}))
        else:
            print(f"{standstill.members} members, {standstill.protocol}: done", file=sys.stderr)
        times = (
            f"{standstill.longest_ms} ms",
            f"{standstill.mean_ms:.0f} ms",
            f"{standstill.stood_still * standstill.mean_ms / 1000:.1f} s",
        )
        rows.append(
            (standstill.members, standstill.protocol, standstill.partitions, standstill.stood_still, *times)
        )
    if not options.json:
        head = ("members", "protocol", "partitions", "stood still", "longest", "mean", "in all")
        print("\n".join(report.grid(head, rows, _width())))
        _note(
            "assumed: one member more comes to a group with two partitions for each; heartbeats go out "
            f"every {matrices.HEARTBEAT_MS} ms, and the application of each needs "
            f"{matrices.CALLBACK_MS} ms to let go; bytes travel for 1 to 5 ms"
        )
    return 0


def _race(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import race, report

    rows: list[tuple[object, ...]] = []
    for name, found in race.races(options.seed):
        if options.json:
            print(one_line({"program": name, **{part: getattr(found, part) for part in found.__slots__}}))
        rows.append((name, found.printed, "none" if found.first is None else found.first, found.seek))
    if not options.json:
        head = ("program", "assignment", "first message", "seek")
        print("\n".join(report.grid(head, rows, _width())))
        _note("assignment, first message and seek are those of the program's last request")
    return 0


_MATRIX: dict[str, Callable[[argparse.Namespace], int]] = {
    "loss": _loss,
    "stop-the-world": _stop_the_world,
    "race": _race,
}
