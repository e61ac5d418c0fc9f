"""`kproto topics` creates, describes, grows, alters and deletes topics."""

from __future__ import annotations

import pytest

from tests.cli.stage import Shell


def test_a_topic_is_created_described_grown_and_deleted(shell: Shell) -> None:
    assert shell("topics create t1 --partitions 2 --config retention.ms=1000") == ["Created topic t1."]
    first, *partitions = shell("topics describe t1")
    assert first.startswith("Topic: t1\tTopicId: ")
    assert first.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=1000")
    assert partitions == [
        f"\tTopic: t1\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for number in range(2)
    ]
    assert shell("topics grow t1 --partitions 3") == ["Set 3 partitions for topic t1."]
    assert len(shell("topics describe t1")) == 4
    assert shell("topics delete t1 --execute") == ["Deleted topic t1."]
    shell("topics describe t1", code=1)
    assert shell.errors == "kproto topics describe: Metadata: UNKNOWN_TOPIC_OR_PARTITION (3): topic 't1'\n"


def test_a_partition_count_behind_a_colon_is_rejected_with_the_option(shell: Shell) -> None:
    """Only `kproto broker` accepts TOPIC:PARTITIONS. `kproto topics create` has --partitions instead."""
    shell("topics create flights:3", code=2)
    assert "TOPIC='flights:3' is not allowed" in shell.errors
    assert "run `kproto topics ... flights --partitions 3`" in shell.errors


def test_a_deletion_without_execute_only_prints_its_plan(shell: Shell) -> None:
    shell("topics create kept --partitions 2")
    assert shell("topics delete kept") == ["delete topic kept with 2 partitions"]
    assert shell.errors == "nothing was deleted; add --execute to do it\n"
    assert "kept" in shell("topics list")


def test_configs_of_topics_are_set_and_returned_to_their_defaults(shell: Shell) -> None:
    shell("topics create a1 a2 --config retention.ms=1000")
    done = shell("topics alter a1 a2 --set segment.bytes=1048576 --delete retention.ms")
    assert done == ["Altered configs of topic a1.", "Altered configs of topic a2."]
    assert [topic["configs"] for topic in shell.json("topics describe a1 a2")] == [
        {"segment.bytes": "1048576"}
    ] * 2


def test_a_topic_that_exists_is_an_error_unless_it_is_allowed(shell: Shell) -> None:
    shell("topics create twice")
    shell("topics create twice", code=1)
    assert "TOPIC_ALREADY_EXISTS" in shell.errors
    shell("topics create twice --if-not-exists")


def test_found_topics_are_described_and_missing_ones_are_errors(shell: Shell) -> None:
    """`topics describe` prints the topics that exist, even if another topic is missing."""
    shell("topics create there")
    [topic] = shell.json("topics describe there nowhere", code=1)
    assert topic["topic"] == "there"
    assert topic["partitions"] == [{"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "elr": []}]
    assert "topic 'nowhere'" in shell.errors


@pytest.mark.parametrize("words", ["topics describe", "topics describe --internal"])
def test_without_names_all_topics_are_described(shell: Shell, words: str) -> None:
    shell("topics create described1 described2 --if-not-exists")
    described = {topic["topic"] for topic in shell.json(words)}
    assert described >= {"described1", "described2"}
    assert described >= set(shell("topics list"))


def test_the_list_has_internal_topics_only_on_request(shell: Shell) -> None:
    shell("topics create visible")
    listed = {topic["topic"]: topic["internal"] for topic in shell.json("topics list --internal")}
    assert listed["visible"] is False
    assert all(name in listed for name in shell("topics list"))
    assert not any(name.startswith("__") for name in shell("topics list"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "topics alter t",
            "--set='' is not allowed; allowed: at least one --set NAME=VALUE or --delete NAME",
        ),
        (
            "topics create t --config x",
            "--config='x' is not allowed; allowed: NAME=VALUE, with each name once",
        ),
        ("topics create t --config x=1 --config x=2", "with each name once"),
        ("topics create t --partitions 0", "'0' is not a whole number of at least 1"),
        ("topics grow t", "the following arguments are required: --partitions"),
        ("topics frob t", "invalid choice: 'frob'"),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    words: str, message: str, shell: Shell
) -> None:
    shell(words, code=2)
    assert message in shell.errors


def test_a_change_of_several_topics_reports_each_success_and_each_failure(shell: Shell) -> None:
    def lines(words: str, *failed: str) -> list[str]:
        printed = shell(words, code=1)
        assert len(shell.errors.splitlines()) == len(failed)
        for name in failed:
            assert f"topic {name!r}" in shell.errors
        return printed

    assert lines("topics create several ?? other !!", "??", "!!") == [
        "Created topic several.",
        "Created topic other.",
    ]
    assert lines("topics grow absent several --partitions 3", "absent") == [
        "Set 3 partitions for topic several."
    ]
    changes = "--set retention.ms=5000"
    assert lines(f"topics alter absent several {changes}", "absent") == ["Altered configs of topic several."]
    assert lines(f"configs alter topics absent several {changes}", "absent") == [
        "Completed updating config for topic several."
    ]
    assert lines("topics delete absent several --execute", "absent") == ["Deleted topic several."]
    assert shell.json("topics delete absent other --execute --json", code=1) == [
        {"topic": "other", "done": "deleted"}
    ]
