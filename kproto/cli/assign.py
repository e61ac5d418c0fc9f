"""`kproto assign`: what an assignor does with a group, and why."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .arguments import Subparsers
from .lines import answer_lines

if TYPE_CHECKING:
    from ..inspect.assignments import AssignorInput


class _AssignorNames:
    """The names of the assignors in a help text; the assignors are imported only to print this text."""

    def __str__(self) -> str:
        from ..group.assignors import ASSIGNORS

        return ", ".join(ASSIGNORS)


def add(commands: Subparsers) -> None:
    assign = commands.add_parser(
        "assign",
        help="assign partitions to the members of a group, and explain what moves",
        description="Run a client-side assignor as the leader of a group does. Print what each member gets, "
        "and for each partition why it moves, stays or is withheld.",
        epilog="Example: "
        "kproto assign cooperative-sticky --topic flights:6 --member m1=flights:0-5 --member m2",
    )
    assign.add_argument(
        "assignor",
        nargs="?",
        metavar="ASSIGNOR",
        const=_AssignorNames(),
        help="the name of the assignor: %(const)s",
    )
    assign.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="a topic, such as flights:6; flights:6@a,b places one replica of each partition, in rack a and "
        "rack b alternately",
    )
    assign.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="ID[=OWNED]",
        help="a member that subscribes to all topics, and the partitions that it owned, such as "
        "m1=flights:0-2,5; m1@a is a member in rack a",
    )
    assign.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="read the group from a file with one JSON object, instead of ASSIGNOR, --topic and --member",
    )
    assign.add_argument("--json", action="store_true", help="print JSON")
    assign.add_argument(
        "--lines",
        action="store_true",
        help="read JSON lines from stdin, each with one group, and answer each with its assignment; with "
        "--json only",
    )
    assign.set_defaults(run=_run_assignor, usage=assign.error)


def _run_assignor(options: argparse.Namespace) -> int:
    from ..inspect import assignments

    if options.lines:
        if not options.json or options.assignor or options.topic or options.member or options.file:
            raise ConfigError(
                "--lines", True, "allowed only with --json, and without a group in the arguments"
            )
        return answer_lines(assignments.answer_assign(lambda: time.perf_counter_ns() // 1000))
    group = _read_group(options)
    if options.json:
        print(json.dumps(assignments.to_json(group), indent=2))
    else:
        print("\n".join(assignments.summary_lines(group)))
    return 0


def _read_group(options: argparse.Namespace) -> AssignorInput:
    """Return the group that the arguments or the file describe.

    Raises ConfigError if `--file` is combined with arguments that describe a group, or if the file cannot
    be read. Exits with a usage message if the group is incomplete or not valid.
    """
    from ..inspect import assignments
    from ..inspect.json_lines import BadQuestion, parse_question

    has_group_arguments = options.assignor or options.topic or options.member
    try:
        if options.file is not None:
            if has_group_arguments:
                raise ConfigError(
                    "--file", str(options.file), "allowed only without ASSIGNOR, --topic and --member"
                )
            return assignments.parse_input(parse_question(_read_file(options.file)))
        topics: dict[str, Any] = {}
        for text in options.topic:
            name, placement = assignments.parse_topic(text)
            if name in topics:
                raise ConfigError("--topic", text, "allowed once for each topic")
            topics[name] = placement
        members = [assignments.parse_member(text, list(topics)) for text in options.member]
        if not (options.assignor and topics and members):
            options.usage("ASSIGNOR, at least one --topic and one --member are required; or --file")
        group_fields: dict[str, Any] = {"assignor": options.assignor, "topics": topics, "members": members}
        return assignments.parse_input(group_fields)
    except BadQuestion as error:
        options.usage(str(error))
        raise AssertionError from None  # options.usage() exits.


def _read_file(path: Path) -> bytes:
    """Return the contents of the file; "-" is stdin."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "--file", str(path), f"cannot be read: {error.strerror or error}; allowed: a readable file"
        ) from None
