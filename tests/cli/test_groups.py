"""`kproto groups` shows members, offsets and lag, and resets and deletes committed offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from kproto.broker.server import Server
from kproto.cli import groups, main
from kproto.errors import BrokerError, NoOffsetForPartition, RequestTimedOut
from tests.cli.stage import Shell, StubAdmin

_numbers = count()


@pytest.fixture(scope="module", autouse=True)
def records(broker: Server) -> None:
    """Write 10 records to each of the 2 partitions of the topic g."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics({"g": 2})
        for number in range(20):
            producer.send("g", b"%d" % number, partition=number % 2, timestamp=1_000 + number)


@pytest.fixture
def group(broker: Server) -> Iterator[str]:
    """A group without members that has committed offset 4 for g-0 and offset 6 for g-1."""
    name = f"group-{next(_numbers)}"
    with Admin(broker.bootstrap) as admin:
        admin.commit_offsets(name, {TopicPartition("g", 0): 4, TopicPartition("g", 1): 6})
        yield name


def new_offsets(shell: Shell, group: str, words: str) -> dict[int, int]:
    """Return, by partition, the offsets that a reset with `words` would commit."""
    return {row["partition"]: row["newOffset"] for row in shell.json(f"groups reset {group} {words}")}


def test_offsets_and_lag_of_a_group_without_members(shell: Shell, group: str) -> None:
    _, titles, *rows = shell(f"groups describe {group}")
    expected = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert " ".join(titles.split()) == expected
    assert [row.split() for row in rows] == [
        [group, "g", "0", "4", "10", "6", "-", "-", "-"],
        [group, "g", "1", "6", "10", "4", "-", "-", "-"],
    ]


def test_members_and_state_of_a_group(shell: Shell, broker: Server) -> None:
    with Consumer(broker.bootstrap, group_id="lively", client_id="app") as consumer:
        consumer.subscribe(["g"])
        while not consumer.assignment():
            consumer.poll(0.1)
        [member] = shell.json("groups describe lively --members")
        [state] = shell.json("groups describe lively --state")
        owned = shell.json("groups describe lively")
        text = shell("groups describe lively --members")[2].split()
        state_table = shell("groups describe lively --state")
        shell("groups reset lively --topic g --to-earliest --execute", code=1)
    assert shell.errors == (
        "kproto groups reset: the offsets can't be reset: group 'lively' has members and is in state Stable: "
        "stop them first\n"
    )
    assert (member["clientId"], member["assignment"]) == ("app", {"g": [0, 1]})
    assert text[-2:] == ["2", "g:0,1"]
    assert (state["state"], state["members"], state["assignor"]) == ("Stable", 1, "cooperative-sticky")
    assert state["coordinator"] == broker.bootstrap
    assert [line.split() for line in state_table] == [
        [],
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["lively", broker.bootstrap, "(1)", "cooperative-sticky", "Stable", "1"],
    ]
    assert [(row["partition"], row["clientId"], row["currentOffset"]) for row in owned] == [
        (0, "app", 10),
        (1, "app", 10),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--to-earliest", {0: 0, 1: 0}),
        ("--to-latest", {0: 10, 1: 10}),
        ("--to-current", {0: 4, 1: 6}),
        ("--to-offset 7", {0: 7, 1: 7}),
        ("--shift-by 2", {0: 6, 1: 8}),
        ("--shift-by -5", {0: 0, 1: 1}),
        ("--to-datetime 1970-01-01T00:00:01.004", {0: 2, 1: 2}),
        ("--to-datetime 1970-01-01T01:00:01.004+01:00", {0: 2, 1: 2}),
        ("--by-duration 1h", {0: 10, 1: 10}),
        ("--by-duration P36500D", {0: 0, 1: 0}),
        ("--to-earliest --topic g:1", {1: 0}),
        ("--to-offset 99", {0: 10, 1: 10}),
    ],
)
def test_a_reset_without_execute_prints_the_new_offsets(
    shell: Shell, group: str, words: str, expected: dict[int, int]
) -> None:
    assert new_offsets(shell, group, words) == expected
    assert "no offset was committed; add --execute to do it" in shell.errors
    assert new_offsets(shell, group, "--to-current") == {0: 4, 1: 6}


def test_an_owned_partition_without_a_commit_has_no_lag(shell: Shell, broker: Server) -> None:
    with Consumer(broker.bootstrap, group_id="fresh", auto_offset_reset="none") as consumer:
        consumer.subscribe(["g"])
        while not consumer.assignment():
            with suppress(NoOffsetForPartition):
                consumer.poll(0.1)
        rows = shell.json("groups describe fresh")
        table = shell("groups describe fresh")
    assert [(row["currentOffset"], row["logEndOffset"], row["lag"]) for row in rows] == [(None, 10, None)] * 2
    assert table[2].split()[:6] == ["fresh", "g", "0", "-", "10", "-"]


def test_a_duration_begins_before_the_present_time(shell: Shell) -> None:
    minute = 60_000
    now = time.time_ns() // 1_000_000
    shell("topics create recent")
    with Producer(shell.bootstrap) as producer:
        for ago in (15 * minute, 5 * minute, 0):
            producer.send("recent", b"x", timestamp=now - ago)
    assert new_offsets(shell, "none", "--topic recent --by-duration 10m") == {0: 1}
    assert new_offsets(shell, "none", "--topic recent --by-duration PT20M") == {0: 0}


def test_a_partition_without_a_commit_is_skipped_or_set_to_its_end(shell: Shell) -> None:
    assert new_offsets(shell, "none", "--topic g:0 --shift-by 2") == {}
    assert "g-0 has no committed offset for --shift-by: it is skipped" in shell.errors
    assert new_offsets(shell, "none", "--topic g:0 --to-current") == {0: 10}
    assert "skipped" not in shell.errors


def test_new_offsets_are_printed_as_kafkas_tool_prints_them(shell: Shell, group: str) -> None:
    lines = shell(f"groups reset {group} --shift-by 1")
    assert [line.split() for line in lines] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, "g", "0", "5"],
        [group, "g", "1", "7"],
    ]


def test_an_offset_outside_of_the_log_is_moved_into_it_with_a_note(shell: Shell, group: str) -> None:
    new_offsets(shell, group, "--to-offset 99 --topic g:0")
    assert "g-0: offset 99 is outside of the log, 0 to 10; the new offset is 10" in shell.errors


def test_a_reset_to_the_committed_offset_keeps_an_offset_outside_of_the_log(
    shell: Shell, broker: Server
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.commit_offsets("ahead", {TopicPartition("g", 0): 99})
    assert new_offsets(shell, "ahead", "--to-current") == {0: 99}


def test_a_reset_without_a_topic_changes_only_partitions_with_commits(shell: Shell, broker: Server) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.commit_offsets("partial", {TopicPartition("g", 1): 3})
    resets = {"--to-earliest": 0, "--to-latest": 10, "--to-current": 3, "--shift-by 1": 4}
    for words, offset in resets.items():
        assert new_offsets(shell, "partial", words) == {1: offset}
    assert "skipped" not in shell.errors


def test_a_reset_with_execute_commits(shell: Shell, group: str) -> None:
    shell(f"groups reset {group} --to-earliest --execute")
    assert new_offsets(shell, group, "--to-current") == {0: 0, 1: 0}


def test_exported_offsets_can_be_committed_from_a_file(shell: Shell, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(shell(f"groups reset {group} --to-current --export")))
    assert file.read_text() == "g,0,4\ng,1,6"
    shell(f"groups reset {group} --to-latest --execute")
    shell(f"groups reset {group} --execute --from-file {file}")
    assert new_offsets(shell, group, "--to-current") == {0: 4, 1: 6}


def test_offsets_of_a_file_are_moved_into_the_log_with_a_note(
    shell: Shell, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("g,0,4\ng,1,99\n")
    assert new_offsets(shell, group, f"--from-file {file}") == {0: 4, 1: 10}
    assert "g-1: offset 99 is outside of the log, 0 to 10; the new offset is 10" in shell.errors
    file.write_text("g,7,4\n")
    shell(f"groups reset {group} --from-file {file}", code=1)
    assert "g-7: the topic has 2 partitions" in shell.errors


def test_an_invalid_file_of_offsets_is_an_error_with_its_line(
    shell: Shell, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("g,0,4\n\ng,x,1\n")
    shell(f"groups reset {group} --execute --from-file {file}", code=2)
    assert "lines TOPIC,PARTITION,OFFSET; line 3 is 'g,x,1'" in shell.errors


def test_groups_and_single_offsets_are_deleted(shell: Shell, group: str) -> None:
    assert shell(f"groups delete {group}") == [
        f"delete group {group} in state Empty, with 2 committed offsets and 0 members"
    ]
    assert shell(f"groups delete-offsets {group} --topic g:0") == [
        f"delete the committed offset of g-0 in group {group}"
    ]
    shell(f"groups delete-offsets {group} --topic g:0 --execute")
    assert [row["partition"] for row in shell.json(f"groups describe {group}")] == [1]
    done = shell.json(f"groups delete {group} nowhere --execute", code=1)
    assert done == [{"group": group, "done": "deleted"}]
    assert "GROUP_ID_NOT_FOUND (69): group 'nowhere'" in shell.errors
    shell(f"groups describe {group}", code=1)
    assert f"the group {group!r} does not exist" in shell.errors


def test_the_plan_of_a_deletion_reports_missing_groups(shell: Shell, group: str) -> None:
    plan = shell(f"groups delete {group} nowhere", code=1)
    assert plan == [f"delete group {group} in state Empty, with 2 committed offsets and 0 members"]
    assert "the group 'nowhere' does not exist" in shell.errors
    assert shell("groups delete-offsets nowhere --topic g", code=1) == []
    assert "the group 'nowhere' does not exist" in shell.errors


@pytest.mark.parametrize("verb", ["delete", "describe"])
def test_commands_for_several_groups_end_at_the_first_request_without_an_answer(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def describe(name: str) -> Any:
        tried.append(name)
        raise RequestTimedOut("FindCoordinator", 1)

    StubAdmin(monkeypatch, groups, group=describe)
    assert main(["groups", verb, "a", "b", "--bootstrap", "kafka:9092"]) == 1
    assert "FindCoordinator" in capsys.readouterr().err
    assert tried == ["a"]


def test_the_list_shows_types_and_states(shell: Shell, group: str) -> None:
    [listed] = [row for row in shell.json("groups list") if row["group"] == group]
    assert (listed["type"], listed["state"]) == ("classic", "Empty")
    assert [group, "Classic", "Empty"] in [line.split() for line in shell("groups list")]


def test_a_reset_of_a_group_without_commits_needs_a_topic(shell: Shell) -> None:
    shell("groups reset fresh --to-earliest", code=2)
    assert "at least one topic, because group 'fresh' has no committed offsets" in shell.errors
    assert new_offsets(shell, "fresh", "--to-earliest --topic g") == {0: 0, 1: 0}
    assert new_offsets(shell, "fresh", "--to-current --topic g") == {0: 10, 1: 10}
    assert new_offsets(shell, "fresh", "--shift-by 1 --topic g") == {}
    assert "g-0 has no committed offset for --shift-by: it is skipped" in shell.errors


def test_a_group_that_cannot_be_described_is_an_error_and_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: Shell, group: str
) -> None:
    with Admin(shell.bootstrap) as broker:
        described = broker.group(group)

    def describe(name: str) -> Any:
        if name != group:
            raise BrokerError(30, f"group {name}")
        return described

    StubAdmin(monkeypatch, groups, group=describe)
    words = ["groups", "describe", "secret", group, "--members", "--json", "--bootstrap", "kafka:9092"]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.out == ""  # No member is printed.
    assert printed.err.startswith("kproto groups describe: ")
    assert "GROUP_AUTHORIZATION_FAILED" in printed.err


def test_a_group_with_a_deleted_topic_does_not_hide_the_others(
    shell: Shell, broker: Server, group: str
) -> None:
    with Admin(broker.bootstrap) as admin, Consumer(broker.bootstrap, group_id="a-deleted") as consumer:
        admin.create_topics({"deleted": 1})
        consumer.subscribe(["deleted"])
        while not consumer.assignment():
            consumer.poll(0.1)
        admin.delete_topics(["deleted"])
        rows = shell.json(f"groups describe a-deleted {group}", code=1)
    assert [(row["group"], row["partition"]) for row in rows] == [(group, 0), (group, 1)]
    assert "topic 'deleted' does not exist" in shell.errors
