"""The quorum of controllers in `kproto cluster`: describe it, add and remove controllers (KIP-853)."""

from __future__ import annotations

import argparse
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from json import dumps
from typing import TYPE_CHECKING
from uuid import UUID

from ..addresses import address_text
from ..errors import ConfigError
from .arguments import Subparsers, address, node_id
from .connection import add_execute, add_verb, admin_client, say_not_executed
from .tables import cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from consumer import QuorumInfo, RaftVoterEndpoint
    from consumer.engine.admin.quorum import QuorumReplicaState

_REPLICA_TITLES = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def add_quorum_verbs(verbs: Subparsers) -> None:
    """Add the verbs `quorum`, `add-controller` and `remove-controller`."""
    quorum = add_verb(
        verbs, "quorum", _describe_quorum, "print the leader and the voters of the metadata quorum"
    )
    quorum.add_argument("--replication", action="store_true", help="print how far each replica has read")
    adding = add_verb(
        verbs,
        "add-controller",
        _add_voter,
        "make a controller a voter of the metadata quorum",
        epilog="Example: kproto cluster add-controller 4 --directory-id 5L0xoL9gTKa0Qt3k9UYy4A --listener "
        "CONTROLLER://host-4:9093 --execute --bootstrap localhost:9092",
    )
    _add_controller_arguments(adding)
    adding.add_argument(
        "--listener",
        action="append",
        required=True,
        metavar="NAME://HOST:PORT",
        help="an advertised listener of the controller",
    )
    add_execute(adding, "add the controller")
    removing = add_verb(verbs, "remove-controller", _remove_voter, "remove a voter from the metadata quorum")
    _add_controller_arguments(removing)
    add_execute(removing, "remove the controller")


def _add_controller_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("controller", type=node_id, metavar="ID", help="the node.id of the controller")
    parser.add_argument(
        "--directory-id",
        required=True,
        type=_parse_directory_id,
        metavar="ID",
        help="the directory.id in meta.properties of the controller's metadata directory",
    )


def _parse_directory_id(text: str) -> UUID:
    # b64decode skips characters that are not base64, so the characters are checked first.
    if not re.fullmatch(r"[\w-]{22}", text, re.ASCII):
        message = f"{text!r} is not a directory id of 22 characters, such as 5L0xoL9gTKa0Qt3k9UYy4A"
        raise argparse.ArgumentTypeError(message)
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def uuid_text(value: UUID) -> str:
    """Return an id in URL-safe base64 without padding, as Kafka's Uuid.toString does."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _endpoint_text(endpoint: RaftVoterEndpoint) -> str:
    return f"{endpoint.listener}://{address_text(endpoint.host, endpoint.port)}"


def _describe_quorum(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        cluster_id = admin.describe_cluster().cluster_id
        quorum = admin.describe_metadata_quorum()
    if options.replication:
        _print_replicas(quorum, as_json=options.json)
    else:
        _print_status(cluster_id, quorum, as_json=options.json)
    return 0


def _leader(quorum: QuorumInfo) -> QuorumReplicaState:
    """Return the leader's state. If several voters have its id, return the one with the longest log."""
    return max(
        quorum.voters, key=lambda voter: (voter.replica_id == quorum.leader_id, voter.log_end_offset or 0)
    )


def _print_status(cluster_id: str | None, quorum: QuorumInfo, *, as_json: bool) -> None:
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset or 0)
    values: dict[str, object] = {
        "clusterId": cluster_id,
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "maxFollowerLag": (leader.log_end_offset or 0) - (slowest.log_end_offset or 0),
        "maxFollowerLagTimeMs": _lag_ms(leader, slowest),
    }
    nodes = {
        "currentVoters": _json_nodes(quorum, quorum.voters),
        "currentObservers": _json_nodes(quorum, quorum.observers),
    }
    if as_json:
        print_json([{**values, **nodes}])
        return
    # As in kafka-metadata-quorum, an unknown time is -1, and lists of nodes are printed as JSON with spaces.
    printed_values = {key: -1 if value is None else value for key, value in values.items()}
    node_texts = {key: dumps(entries) for key, entries in nodes.items()}
    for key, value in {**printed_values, **node_texts}.items():
        title = f"{key[0].upper()}{key[1:]}:"
        print(f"{title:<23} {cell(value)}")


def _lag_ms(leader: QuorumReplicaState, slowest: QuorumReplicaState) -> int | None:
    """Return the time in ms by which the slowest voter lags behind the leader, or None if it is unknown."""
    if slowest.replica_id == leader.replica_id:
        return 0
    if leader.last_caught_up_timestamp is None or slowest.last_caught_up_timestamp is None:
        return None
    return leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp


def _json_nodes(quorum: QuorumInfo, replicas: Iterable[QuorumReplicaState]) -> list[dict[str, object]]:
    """Return a dict for each replica: its id, plus its directory id and endpoints where they are known."""
    nodes: list[dict[str, object]] = []
    for replica in replicas:
        node: dict[str, object] = {"id": replica.replica_id}
        if replica.replica_directory_id is not None:
            node["directoryId"] = uuid_text(replica.replica_directory_id)
        endpoints = quorum.nodes.get(replica.replica_id, ())
        if endpoints:
            node["endpoints"] = [_endpoint_text(endpoint) for endpoint in endpoints]
        nodes.append(node)
    return nodes


def _print_replicas(quorum: QuorumInfo, *, as_json: bool) -> None:
    leader = _leader(quorum)
    followers = [voter for voter in quorum.voters if voter is not leader]
    rows: list[tuple[object, ...]] = []
    for status, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers)):
        for replica in replicas:
            log_end_offset = -1 if replica.log_end_offset is None else replica.log_end_offset
            directory = replica.replica_directory_id or UUID(int=0)
            rows.append(
                (
                    replica.replica_id,
                    uuid_text(directory),
                    log_end_offset,
                    (leader.log_end_offset or 0) - log_end_offset,
                    -1 if replica.last_fetch_timestamp is None else replica.last_fetch_timestamp,
                    -1 if replica.last_caught_up_timestamp is None else replica.last_caught_up_timestamp,
                    status,
                )
            )
    if as_json:
        keys = [title[0].lower() + title[1:] for title in _REPLICA_TITLES]
        print_json(dict(zip(keys, row, strict=True)) for row in rows)
    else:
        print_table([(title, len(title)) for title in _REPLICA_TITLES], rows)


def _parse_listener(word: str) -> RaftVoterEndpoint:
    """Parse NAME://HOST:PORT."""
    from consumer import RaftVoterEndpoint

    name, _, host_and_port = word.partition("://")
    try:
        host, port = address(host_and_port)
    except argparse.ArgumentTypeError:
        name = ""
        host, port = "", 0
    if not name or not port:
        allowed = "allowed: NAME://HOST:PORT, such as CONTROLLER://localhost:9093"
        raise ConfigError("--listener", word, allowed)
    return RaftVoterEndpoint(name, host, port)


def _add_voter(options: argparse.Namespace) -> int:
    endpoints = [_parse_listener(word) for word in options.listener]
    if options.execute:
        with admin_client(options) as admin:
            admin.add_raft_voter(options.controller, options.directory_id, endpoints)
    endpoints_text = ", ".join(map(_endpoint_text, endpoints))
    text = (
        f"controller {options.controller} with directory id {uuid_text(options.directory_id)} and "
        f"endpoints: {endpoints_text}"
    )
    return _report_change(options, text, verb="Add", participle="added")


def _remove_voter(options: argparse.Namespace) -> int:
    if options.execute:
        with admin_client(options) as admin:
            admin.remove_raft_voter(options.controller, options.directory_id)
    text = f"KRaft controller {options.controller} with directory id {uuid_text(options.directory_id)}"
    return _report_change(options, text, verb="Remove", participle="removed")


def _report_change(options: argparse.Namespace, text: str, *, verb: str, participle: str) -> int:
    """Print what was done or, without --execute, what the command would do."""
    if not options.execute:
        print(f"{verb} {cell(text)}")
        return say_not_executed(f"no controller was {participle}")
    if options.json:
        print_json([{"controller": options.controller, "done": participle}])
    else:
        print(f"{participle.capitalize()} {cell(text)}")
    return 0
