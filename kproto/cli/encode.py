"""`kproto encode`: encode messages and record sets from Kafka's JSON form to bytes."""

from __future__ import annotations

import argparse

from .arguments import Subparsers
from .lines import answer_lines


def add(commands: Subparsers) -> None:
    encode = commands.add_parser(
        "encode",
        help="encode messages or record sets from Kafka's JSON form",
        description='Read JSON lines such as {"kind": "request", "name": "HeartbeatRequest", '
        '"version": 4, "json": {...}} from stdin, and answer each with its bytes: {"hex": '
        '"..."}, or {"error": "..."}. `kproto decode --json` prints this form. Exit code '
        "1 if any answer is an error.",
    )
    encode.add_argument(
        "--records", action="store_true", help='encode record sets: {"batches": [...], "rows": [...]}'
    )
    encode.add_argument("--json", action="store_true", help="the only input format; may be omitted")
    encode.add_argument(
        "--lines", action="store_true", help="read one object per line, the only mode; may be omitted"
    )
    encode.set_defaults(run=_encode)


def _encode(options: argparse.Namespace) -> int:
    from ..inspect import json_lines

    return answer_lines(json_lines.encode_records if options.records else json_lines.encode)
