"""`kproto encode`: bytes of Kafka's JSON form."""

from __future__ import annotations

import argparse

from .arguments import Commands
from .lines import answer


def add(commands: Commands) -> None:
    encode = commands.add_parser(
        "encode",
        help="bytes of a message or a record set from Kafka's JSON form",
        description='Read JSON lines on stdin such as {"kind": "request", "name": "HeartbeatRequest", '
        '"version": 4, "json": {...}}, and answer each with its bytes: {"hex": "..."}, or {"error": "..."}. '
        "This is what kproto decode --json prints. Exit code 1 if a line is answered with an error.",
    )
    encode.add_argument(
        "--records", action="store_true", help='record sets: {"batches": [...], "rows": [...]}'
    )
    encode.add_argument("--json", action="store_true", help="the form of the input; there is no other")
    encode.add_argument("--lines", action="store_true", help="one object a line; there is no other way")
    encode.set_defaults(run=_encode)


def _encode(options: argparse.Namespace) -> int:
    from ..inspect import json_lines

    return answer(json_lines.encode_records if options.records else json_lines.encode)
