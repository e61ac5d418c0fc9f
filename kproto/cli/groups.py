"""`kproto groups`: list, describe, reset and delete groups."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..addresses import address_text
from ..errors import ConfigError, ConnectionFailed, KprotoError, RequestTimedOut
from .arguments import Subparsers, whole_number
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    done_items,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from consumer import Admin, Group, TopicPartition

_MEMBER_COLUMNS = (("CONSUMER-ID", 15), ("HOST", 15), ("CLIENT-ID", 15))


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "groups",
        help_text="list, describe, reset and delete groups",
        description="Manage the groups of a cluster. The columns are those of kafka-consumer-groups.",
    )
    add_verb(verbs, "list", _list, "print each group with its type, protocol and state")

    describe = add_verb(verbs, "describe", _describe, "print the offsets and the lag of groups, or members")
    describe.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    shown = describe.add_mutually_exclusive_group()
    shown.add_argument("--members", action="store_true", help="print the members and their partitions")
    shown.add_argument("--state", action="store_true", help="print the state, coordinator and assignor")

    reset = add_verb(
        verbs,
        "reset",
        _reset,
        "commit other offsets for a group without members",
        epilog="Example: kproto groups reset app --topic flights --to-earliest --execute "
        "--bootstrap localhost:9092",
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:P,P]",
        help="a topic, or some of its partitions, such as flights:0,2; default: all partitions with commits",
    )
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first offset")
    target.add_argument("--to-latest", action="store_true", help="the end offset")
    target.add_argument("--to-current", action="store_true", help="the committed offset")
    target.add_argument("--to-offset", type=whole_number, metavar="N", help="this offset")
    target.add_argument("--shift-by", type=whole_number, metavar="N", help="N records later, or earlier")
    target.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="the first record at or after a time such as 2026-11-28T09:30:00; without a zone, in UTC",
    )
    target.add_argument(
        "--by-duration", metavar="DURATION", help="the first record of the last 10m, 4h or P7D"
    )
    target.add_argument(
        "--from-file",
        type=Path,
        metavar="FILE",
        help="the offsets in a file with lines TOPIC,PARTITION,OFFSET",
    )
    reset.add_argument("--export", action="store_true", help="print lines TOPIC,PARTITION,OFFSET")
    add_execute(reset, "commit the offsets")

    delete = add_verb(verbs, "delete", _delete, "delete groups with their committed offsets")
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    add_execute(delete, "delete the groups")

    offsets = add_verb(verbs, "delete-offsets", _delete_offsets, "delete committed offsets of a group")
    offsets.add_argument("group", metavar="GROUP")
    offsets.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:P,P]",
        help="such as flights or flights:0,2",
    )
    add_execute(offsets, "delete the offsets")


def _list(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        groups = sorted(admin.list_groups().values(), key=lambda group: group.name)
    if options.json:
        print_json(
            {
                "group": group.name,
                "type": group.type,
                "protocol": group.protocol_type,
                "state": group.state,
            }
            for group in groups
        )
    else:
        print_table(
            [("GROUP", 25), ("TYPE", 10), ("PROTOCOL", 10), ("STATE", 15)],
            [(group.name, _type_title(group.type), group.protocol_type, group.state) for group in groups],
        )
    return 0


def _type_title(name: str | None) -> str | None:
    return None if name is None else name.capitalize()


def _describe(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        names = options.groups or sorted(admin.list_groups())
        _for_each_group(admin, names, lambda group: _print_group(admin, group, options), failures)
    return exit_code("groups describe", failures)


def _for_each_group(
    admin: Admin, names: Iterable[str], call: Callable[[Group], object], failures: list[KprotoError]
) -> None:
    """Call `call` with each group. The errors of single groups are added to `failures`.

    If no broker answers for a group, the function raises RequestTimedOut or ConnectionFailed and skips the
    remaining groups: each of them would probably wait as long, and then fail.
    """
    for name in names:
        try:
            call(_existing_group(admin, name))
        except (RequestTimedOut, ConnectionFailed):
            raise
        except KprotoError as error:
            failures.append(error)


def _print_group(admin: Admin, group: Group, options: argparse.Namespace) -> None:
    if options.members:
        _print_members(group, as_json=options.json)
    elif options.state:
        _print_state(admin, group, as_json=options.json)
    else:
        _print_offsets(admin, group, as_json=options.json)


def _existing_group(admin: Admin, name: str) -> Group:
    """Return a group. Raises KprotoError if it does not exist."""
    group = admin.group(name)
    if group.type is None:
        raise KprotoError(f"the group {name!r} does not exist")
    return group


def _print_offsets(admin: Admin, group: Group, *, as_json: bool) -> None:
    owners = {partition: member for member in group.members for partition in member.partitions}
    partitions = sorted({*group.committed, *owners})
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest")) if partitions else {}
    rows: list[list[object]] = []
    for partition in partitions:
        committed, end, owner = group.committed.get(partition), ends[partition].offset, owners.get(partition)
        lag = None if committed is None or end is None else end - committed
        member = (owner.member_id, owner.host, owner.client_id) if owner else (None, None, None)
        rows.append([group.name, partition.topic, partition.partition, committed, end, lag, *member])
    if as_json:
        keys = ("group", "topic", "partition", "currentOffset", "logEndOffset", "lag")
        print_json(dict(zip((*keys, "consumerId", "host", "clientId"), row, strict=True)) for row in rows)
        return
    columns = [("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10)]
    columns += [("CURRENT-OFFSET", 15), ("LOG-END-OFFSET", 15), ("LAG", 15), *_MEMBER_COLUMNS]
    print()
    print_table(columns, rows)


def _print_members(group: Group, *, as_json: bool) -> None:
    members = sorted(group.members, key=lambda member: member.member_id)
    if as_json:
        print_json(
            {
                "group": group.name,
                "consumerId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "host": member.host,
                "clientId": member.client_id,
                "assignment": _partitions_by_topic(member.partitions),
            }
            for member in members
        )
        return
    rows = [
        (
            group.name,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            len(member.partitions),
            _assignment_text(member.partitions),
        )
        for member in members
    ]
    columns = [("GROUP", 15), _MEMBER_COLUMNS[0], ("GROUP-INSTANCE-ID", 15), *_MEMBER_COLUMNS[1:]]
    print()
    print_table([*columns, ("#PARTITIONS", 15), ("ASSIGNMENT", 15)], rows)


def _partitions_by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return dict(topics)


def _assignment_text(partitions: Sequence[TopicPartition]) -> str | None:
    """Return an assignment such as "flights:0,1 a:2", or None if it is empty.

    In kafka-consumer-groups, semicolons separate the topics.
    """
    parts = [
        f"{topic}:{','.join(map(str, numbers))}"
        for topic, numbers in _partitions_by_topic(partitions).items()
    ]
    return " ".join(parts) or None


def _print_state(admin: Admin, group: Group, *, as_json: bool) -> None:
    node = admin.coordinator(group.name)
    broker = admin.view.brokers[node]
    address = address_text(broker.host, broker.port)
    if as_json:
        print_json(
            [
                {
                    "group": group.name,
                    "type": group.type,
                    "coordinator": address,
                    "coordinatorId": node,
                    "assignor": group.assignor,
                    "state": group.state,
                    "members": len(group.members),
                }
            ]
        )
        return
    columns = [("GROUP", 15), ("COORDINATOR (ID)", 25), ("ASSIGNMENT-STRATEGY", 20), ("STATE", 20)]
    row = (group.name, f"{address}  ({node})", group.assignor, group.state, len(group.members))
    print()
    print_table([*columns, ("#MEMBERS", 8)], [row])


def _reset(options: argparse.Namespace) -> int:
    from .offset_resets import clamp_to_log, new_offsets, read_offsets_file

    with admin_client(options) as admin:
        group = admin.group(options.group)
        if group.members and options.execute:
            detail = f"group {options.group!r} has members and is in state {group.state}: stop them first"
            return exit_code("groups reset", [KprotoError(f"the offsets can't be reset: {detail}")])
        if options.from_file is not None:
            offsets, notes = clamp_to_log(admin, read_offsets_file(options.from_file))
        else:
            partitions = _selected_partitions(admin, options.topic, group)
            offsets, notes = new_offsets(admin, partitions, group.committed, options)
        exit_code("groups reset", notes)  # This call prints the notes. They do not stop the reset.
        if options.execute:
            admin.commit_offsets(options.group, dict(offsets))
    _print_new_offsets(options, offsets)
    return 0 if options.execute else say_not_executed("no offset was committed")


def _print_new_offsets(options: argparse.Namespace, offsets: Mapping[TopicPartition, int]) -> None:
    rows = [
        (options.group, topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
    ]
    if options.export:
        for row in rows:
            print(",".join(map(str, row[1:])))
    elif options.json:
        print_json(dict(zip(("group", "topic", "partition", "newOffset"), row, strict=True)) for row in rows)
    else:
        print()
        print_table([("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10), ("NEW-OFFSET", 15)], rows)


def _selected_partitions(admin: Admin, words: Sequence[str], group: Group) -> list[TopicPartition]:
    """Return the partitions that `--topic` names. Without `--topic`, return those with committed offsets."""
    from .arguments import topic_partitions

    if not words and not group.committed:
        allowed = f"allowed: at least one topic, because group {group.name!r} has no committed offsets"
        raise ConfigError("--topic", "", allowed)
    if not words:
        return sorted(group.committed)
    return [partition for word in words for partition in topic_partitions("--topic", word, admin.partitions)]


def _delete(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    names = dict.fromkeys(options.groups)
    with admin_client(options) as admin:
        if options.execute:
            for name in done_items(names, lambda name: admin.delete_groups([name]), failures):
                _print_done(options, {"group": name, "done": "deleted"}, f"Deleted group {cell(name)}.")
            return exit_code("groups delete", failures)
        _for_each_group(admin, names, _print_deletion, failures)
    say_not_executed("nothing was deleted")
    return exit_code("groups delete", failures)


def _print_deletion(group: Group) -> None:
    count = f"{len(group.committed)} committed offsets and {len(group.members)} members"
    print(f"delete group {cell(group.name)} in state {group.state}, with {count}")


def _delete_offsets(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        partitions = _selected_partitions(admin, options.topic, _existing_group(admin, options.group))
        if not options.execute:
            for partition in partitions:
                print(f"delete the committed offset of {cell(partition)} in group {cell(options.group)}")
            return say_not_executed("nothing was deleted")
        succeeded(lambda: admin.delete_consumer_group_offsets(options.group, partitions), failures)
    if not failures:
        for topic, number in partitions:
            done = {"group": options.group, "topic": topic, "partition": number, "done": "deleted"}
            _print_done(options, done, f"Deleted the committed offset of {cell(topic)} {number}.")
    return exit_code("groups delete-offsets", failures)


def _print_done(options: argparse.Namespace, done: dict[str, Any], text: str) -> None:
    if options.json:
        print_json([done])
    else:
        print(text)
