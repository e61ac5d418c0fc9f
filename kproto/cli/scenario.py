"""`kproto scenario`: the stories of the documents, listed, told, drawn, and with other endings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import Commands, duration, positive, rate, write

if TYPE_CHECKING:
    from ..scenarios import Parameters


def add(commands: Commands) -> None:
    scenario = commands.add_parser(
        "scenario",
        help="stories of groups and their clients in virtual time, each in well under a second",
        description="Without a name: list all scenarios with a line each. With an id (S1-20): run it "
        "and tell "
        "what happened, what came out, and why. `loss`: how many records five clients lose when a "
        "topic grows. "
        "`stop-the-world`: how long partitions stand still, eager beside cooperative. Exit code 1 if "
        "something did not come out as it has to.",
        epilog="Times are written 400ms, 4s, 10m; rates 100/s. A scenario that doesn't take a parameter says "
        "which it takes.",
    )
    scenario.add_argument("name", nargs="?", metavar="ID", help="such as S1-20, or loss, or stop-the-world")
    scenario.add_argument("--client", metavar="NAME", help="whose machine: sarama, kafka-go, ..., or kproto")
    scenario.add_argument(
        "--reset", choices=("latest", "earliest"), help="where a partition without a commit starts"
    )
    scenario.add_argument("--refresh", type=duration, metavar="TIME", help="how old metadata may become")
    scenario.add_argument(
        "--rate", type=rate, metavar="N/s", help="records a second, into each new partition"
    )
    scenario.add_argument("--grow-at", type=duration, metavar="TIME", help="when the topic grows")
    scenario.add_argument(
        "--join-after", type=duration, metavar="TIME", help="how long the group's join takes"
    )
    scenario.add_argument("--polls", type=positive, metavar="N", help="how often the application polls")
    scenario.add_argument("--poll-timeout", type=duration, metavar="TIME", help="how long each poll waits")
    scenario.add_argument("--members", type=positive, metavar="N", help="how many members there are")
    scenario.add_argument(
        "--seed", type=int, default=7, metavar="N", help="decides what is random (default: 7)"
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
    if options.name is None:
        return _list(options)
    if options.name == "loss":
        return _loss(options)
    if options.name == "stop-the-world":
        return _stop_the_world(options)
    return _tell(options)


def _parameters(options: argparse.Namespace) -> Parameters:
    from ..scenarios import Parameters

    return Parameters(
        client=options.client,
        reset=options.reset,
        refresh_ms=options.refresh,
        rate=options.rate,
        grow_at_ms=options.grow_at,
        join_after_ms=options.join_after,
        polls=options.polls,
        poll_timeout_ms=options.poll_timeout,
        members=options.members,
        seed=options.seed,
    )


def _list(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import scenarios, teller

    for found in scenarios():
        if options.json:
            print(one_line({"id": found.id, "title": found.title, "takes": list(found.takes)}))
        else:
            print(teller.line(found))
    return 0


def _tell(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import find, teller

    found = find(options.name)
    told = found.run(_parameters(options), drawn=bool(options.html or options.svg or options.requests))
    if options.json:
        print(one_line(teller.json(found, told)))
    elif options.html:
        write("--html", options.html, teller.page(found, told))
        print(f"{options.html}: {found.title}")
    elif options.svg:
        write("--svg", options.svg, teller.svg(told))
        print(f"{options.svg}: {found.title}")
    elif options.requests:
        print("\n".join(teller.requests(told)))
    else:
        print("\n".join(teller.text(found, told)))
    return 0 if told.holds else 1


def _loss(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import matrices, teller

    found = matrices.losses(seed=options.seed, refresh_ms=options.refresh or 5_000, rate=options.rate or 100)
    rows: list[tuple[object, ...]] = []
    safe = True
    for one in found:
        safe = safe and (one.client != "kproto" or one.lost + one.doubled == 0)
        seen = "never" if one.seen_after_ms is None else f"{one.seen_after_ms / 1000:.1f} s"
        if options.json:
            print(one_line({name: getattr(one, name) for name in one.__slots__}))
        rows.append((one.client, one.detection, one.reset, seen, one.written, one.lost, one.doubled))
    if not options.json:
        head = ("client", "growth", "reset", "seen after", "written", "not read", "twice")
        print("\n".join(teller.grid(head, rows)))
    return 0 if safe else 1


def _stop_the_world(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import matrices, teller

    sizes = (options.members,) if options.members else (3, 10, 100)
    rows: list[tuple[object, ...]] = []
    for one in matrices.standstills(sizes, seed=options.seed):
        if options.json:
            print(one_line({name: getattr(one, name) for name in one.__slots__}))
        else:
            print(f"{one.members} members, {one.protocol}: done", file=sys.stderr)
        times = (
            f"{one.longest_ms} ms",
            f"{one.mean_ms:.0f} ms",
            f"{one.stood_still * one.mean_ms / 1000:.1f} s",
        )
        rows.append((one.members, one.protocol, one.partitions, one.stood_still, *times))
    if not options.json:
        head = ("members", "protocol", "partitions", "stood still", "longest", "mean", "in all")
        print("\n".join(teller.grid(head, rows)))
    return 0
