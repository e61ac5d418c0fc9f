"""`kproto member`: run a group member of one client, and control it through stdin."""

from __future__ import annotations

import argparse
import json
from typing import Any, cast

from ..errors import ConfigError
from .arguments import Subparsers, client_security, command_config


def add(commands: Subparsers) -> None:
    member = commands.add_parser(
        "member",
        help="run a group member of one client, controlled through stdin",
        description="Run a group member of a client on real sockets, with any broker. It reads commands from "
        "stdin, one per line: subscribe T.., pattern RE, unsubscribe, assign T:P:O.., "
        "seek T:P:O, poll on|off, sleep MS, commit, commit-async, rebalance REASON, "
        "assignment, pause, resume, close [stay]. The end of the input closes the member. "
        "Each event is printed on a line: seconds since 1970, then ready, done COMMAND, "
        "assigned, revoked, lost, R T:P OFFSET, commit, error, closed.",
    )
    member.add_argument(
        "--as",
        dest="client",
        required=True,
        metavar="NAME",
        help="the client: java, java-2.6, sarama, sarama-cluster, kafka-go, librdkafka, or kproto "
        "(kproto's own consumer)",
    )
    member.add_argument(
        "bootstrap", metavar="BOOTSTRAP", help="the broker's HOST:PORT, such as 127.0.0.1:9092"
    )
    member.add_argument("client_id", metavar="CLIENT_ID")
    member.add_argument("group", metavar="GROUP")
    member.add_argument(
        "config",
        metavar="CONFIG_JSON",
        nargs="?",
        type=_json_object,
        default={},
        help="JSON object with assignors, instance, session_ms, heartbeat_ms, max_poll_ms, "
        "auto_commit, auto_commit_ms, reset, metadata_ms, rack, isolation, watch, wait_ms, "
        "commit_in_revoke, revoke_ms, manual_poll; other keys are options of the client",
    )
    command_config(member)
    member.set_defaults(run=_member)


def _member(options: argparse.Namespace) -> int:
    from ..testing.driver import drive

    config = options.config
    if options.command_config is not None:
        if options.client != "kproto":
            allowed = "with --as kproto, because the models of other clients support PLAINTEXT only"
            raise ConfigError("--command-config", str(options.command_config), allowed)
        config = {**config, **client_security(options.command_config)}
    drive(options.client, options.bootstrap, options.client_id, options.group, config)
    return 0


def _json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in an argument."""
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is not a JSON object such as {{"reset": "earliest"}}')
    return cast("dict[str, Any]", parsed)
