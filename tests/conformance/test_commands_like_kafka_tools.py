"""The commands of kproto print what Kafka's own tools print, on a real Kafka and on the embedded broker.

The tools and the real Kafka are of the newest release that kproto is tested with.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition, UserScramCredentialUpsertion
from kproto.broker.server import Server, running
from kproto.cli import main
from kproto.cli.features import release_levels
from kproto.messages.index import KAFKA_RELEASE
from tests.conformance import judges
from tests.conformance.kafka_tools import exit_code, tool

pytestmark = pytest.mark.java

GROUPS = "consumer.group.ConsumerGroupCommand"
PRINTED = ("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key")
CONSOLE = [word for name in PRINTED for word in ("--formatter-property", f"{name}=true")]


@pytest.fixture(scope="module")
def tools() -> str:
    """The jars of Kafka's tools as a Java class path."""
    return judges.kafka_jars(KAFKA_RELEASE)


@pytest.fixture(scope="module")
def newest_kafka() -> Iterator[judges.RealKafka]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with judges.real_kafka(settings, version=KAFKA_RELEASE) as broker:
        yield broker


@pytest.fixture(scope="module")
def authorizing() -> Iterator[Server]:
    """An embedded broker with ACLs and without the initial rebalance delay."""
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
    }
    with running(settings=settings) as server:
        yield server


@pytest.fixture(params=["newest_kafka", "authorizing"], ids=["kafka", "embedded"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with 20 records in the topic `tools`, a group `lively` with a member, and a group `idle`."""
    cluster: Any = request.getfixturevalue(request.param)
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topics({"tools": 2}, configs={"retention.ms": "86400000"})
        for number in range(20):
            producer.send("tools", b"v%d" % number, key=b"k%d" % number, headers=[("h", b"%d" % number)])
        producer.flush()
        admin.commit_offsets("idle", {TopicPartition("tools", 0): 3})
        with Consumer(cluster.bootstrap, group_id="lively", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["tools"])
            while not consumer.assignment():
                consumer.poll(0.1)
            yield cluster.bootstrap
        admin.delete_topics(["tools"])
        admin.delete_groups(["idle", "lively"])


def ours(bootstrap: str, words: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Run a kproto command, and return its lines of output, split into words."""
    assert main([*words.split(), "--bootstrap", bootstrap]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]


def theirs(jars: str, bootstrap: str, name: str, *words: str) -> list[list[str]]:
    """Run one of Kafka's tools, and return its lines of output, split into words."""
    printed = tool(jars, name, "--bootstrap-server", bootstrap, *words)
    return [line.split() for line in printed.splitlines() if line.strip()]


def test_commands_print_what_kafkas_tools_print(
    bootstrap: str, tools: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare the words of all lines: titles, names, offsets, lags, members and leaders."""

    def kafka(name: str, words: str) -> list[list[str]]:
        return theirs(tools, bootstrap, name, *words.split())

    def kproto(words: str) -> list[list[str]]:
        return ours(bootstrap, words, capsys)

    assert kproto("topics list --internal") == kafka("TopicCommand", "--list")
    assert kproto("topics describe tools") == kafka("TopicCommand", "--describe --topic tools")
    for group in ("idle", "lively"):
        assert kproto(f"groups describe {group}") == kafka(GROUPS, f"--describe --group {group}")
        state = kafka(GROUPS, f"--describe --group {group} --state")
        assert kproto(f"groups describe {group} --state") == state
    # Kafka's tool prints instance ids only for a group with a static member, and assignments only with
    # --verbose.
    members = kproto("groups describe lively --members")
    shown = [[*row[:2], *row[3:6]] for row in members]
    assert shown == kafka(GROUPS, "--describe --group lively --members")
    for words in ("--to-earliest", "--to-offset 7", "--shift-by 2", "--shift-by -1"):
        reset = kafka(GROUPS, f"--reset-offsets --group idle --topic tools:0 --dry-run {words}")
        assert kproto(f"groups reset idle --topic tools:0 {words}") == reset, words
        reset = kafka(GROUPS, f"--reset-offsets --group idle --all-topics --dry-run {words}")
        assert kproto(f"groups reset idle {words}") == reset, words
    for time, number in (("latest", -1), ("earliest", -2)):
        offsets = kafka("GetOffsetShell", f"--topic tools --time {number}")
        assert kproto(f"offsets list tools --time {time}") == offsets
    read = kafka(
        "consumer.ConsoleConsumer", " ".join(["--topic tools --from-beginning --max-messages 20", *CONSOLE])
    )
    printed = kproto("consume tools --print timestamp,partition,offset,headers,key,value")
    assert len(printed) == 20
    assert sorted(printed) == sorted(read)


def test_what_kprotos_producer_sends_kafkas_consumer_reads(
    bootstrap: str, tools: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"key:one\nkey:two\n")))
    assert ours(bootstrap, "produce tools --key-separator : --header a=b", capsys) == []
    words = ["--topic", "tools", "--from-beginning", "--max-messages", "22", *CONSOLE]
    lines = theirs(tools, bootstrap, "consumer.ConsoleConsumer", *words)
    assert [line[3:] for line in lines if line[-1] in ("one", "two")] == [
        ["a:b", "key", "one"],
        ["a:b", "key", "two"],
    ]


def test_commands_about_the_cluster_print_what_kafkas_tools_print(
    bootstrap: str, tools: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Compare the words of all lines, except offsets and times of the metadata log, which grow."""

    def kafka(name: str, words: str) -> list[list[str]]:
        return theirs(tools, bootstrap, name, *words.split())

    def kproto(words: str) -> list[list[str]]:
        return ours(bootstrap, words, capsys)

    def kproto_json(words: str) -> list[dict[str, Any]]:
        assert main([*words.split(), "--json", "--bootstrap", bootstrap]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    features, kafka_features = kproto("cluster features"), kafka("FeatureCommand", "describe")
    assert [line[:-1] for line in features] == [line[:-1] for line in kafka_features]
    status, kafka_status = kproto("cluster quorum"), kafka("MetadataQuorumCommand", "describe --status")
    assert [line for line in status if line[0] != "HighWatermark:"] == [
        line for line in kafka_status if line[0] != "HighWatermark:"
    ]
    replicas = kproto("cluster quorum --replication")
    kafka_replicas = kafka("MetadataQuorumCommand", "describe --replication")
    columns = (0, 1, 3, 6)  # The columns NodeId, DirectoryId, Lag and Status.
    assert replicas[0] == kafka_replicas[0]
    assert [[row[n] for n in columns] for row in replicas] == [
        [row[n] for n in columns] for row in kafka_replicas
    ]

    rows = kproto_json("cluster log-dirs tools")
    [*_, [described]] = kafka("LogDirsCommand", "--describe --topic-list tools")
    [broker] = json.loads(described)["brokers"]
    assert [
        (row["broker"], row["logDir"], f"{row['topic']}-{row['partition']}", row["size"], row["offsetLag"])
        for row in rows
    ] == [
        (broker["broker"], folder["logDir"], entry["partition"], entry["size"], entry["offsetLag"])
        for folder in broker["logDirs"]
        for entry in folder["partitions"]
    ]
    election = kafka("LeaderElectionCommand", "--election-type PREFERRED --topic tools --partition 1")
    assert kproto("cluster elect tools:1 --execute") == election

    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"tools"}]}')
    reassign = "reassign.ReassignPartitionsCommand"
    words = f"--generate --topics-to-move-json-file {topics} --broker-list 1"
    [plan] = kproto_json("cluster propose tools --brokers 1")
    assert json.loads(kafka(reassign, words)[-1][0]) == plan
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    kproto(f"cluster reassign --file {file} --execute")
    verified = kafka(reassign, f"--verify --reassignment-json-file {file}")
    assert kproto(f"cluster verify --file {file}") == [line for line in verified if line[0] != "Clearing"]
    assert kproto("cluster reassignments") == kafka(reassign, "--list")


def test_commands_about_users_and_configs_print_what_kafkas_tools_print(
    bootstrap: str, tools: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines about quotas, ACLs, credentials, configs and transactions are equal."""

    def kafka(name: str, words: str) -> list[list[str]]:
        return theirs(tools, bootstrap, name, *words.split())

    def kproto(words: str) -> list[list[str]]:
        return ours(bootstrap, words, capsys)

    with Admin(bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", "secret")])
    alter = "--alter --entity-type users --entity-name alice --add-config"
    changed = kafka("ConfigCommand", f"{alter} producer_byte_rate=20000000")
    assert kproto("quotas alter --user alice --set producer_byte_rate=10000000 --execute") == changed
    kproto("quotas alter --user alice --client app --set request_percentage=12.5 --execute")
    kproto("quotas alter --ip-defaults --set connection_creation_rate=7 --execute")
    alice = "--describe --entity-type users --entity-name alice"
    for entity, kafka_entity in {
        "describe --user alice": alice,
        "describe --user alice --client app": f"{alice} --entity-type clients --entity-name app",
        "list users clients": "--describe --entity-type users --entity-type clients",
        "describe --ip-defaults": "--describe --entity-type ips --entity-default",
    }.items():
        assert kproto(f"quotas {entity}") == kafka("ConfigCommand", kafka_entity), entity
    bob = kafka("ConfigCommand", "--describe --entity-type users --entity-name bob")
    assert kproto("users list bob") == bob
    configs = kafka("ConfigCommand", "--describe --entity-type topics --entity-name tools")
    assert kproto("configs describe topics tools") == configs

    kproto("acls add --topic tools --operation read --operation write --principal User:bob")
    kproto("acls add --group app --pattern prefixed --operation read --principal User:bob --deny")
    assert sorted(kproto("acls list")) == sorted(kafka("AclCommand", "--list"))

    with Producer(bootstrap, transactional_id="tools") as producer:
        producer.begin()
        producer.send("tools", b"v", partition=0).result(20)
        assert kproto("transactions list") == kafka("TransactionsCommand", "list")
        words = "describe --transactional-id tools"
        [title, row] = kproto("transactions describe tools")
        [kafka_title, kafka_row] = kafka("TransactionsCommand", words)
        duration = title.index("TransactionDurationMs")
        assert (title, [*row[:duration], *row[duration + 1 :]]) == (
            kafka_title,
            [*kafka_row[:duration], *kafka_row[duration + 1 :]],
        )
        words = "describe-producers --topic tools --partition 0"
        assert kproto("transactions producers tools:0") == kafka("TransactionsCommand", words)
        hanging = kafka("TransactionsCommand", "find-hanging --broker-id 1")
        assert kproto("transactions find-hanging") == hanging
        producer.abort()


@pytest.mark.parametrize("release", ["4.0", ".".join(KAFKA_RELEASE.split(".")[:2])])
def test_the_levels_of_a_release_are_those_of_kafkas_tool(release: str, tools: str) -> None:
    words = ["version-mapping", "--release-version", release]
    levels = dict(line[0].split("=") for line in theirs(tools, "localhost:1", "FeatureCommand", *words))
    assert {name: str(level) for name, level in release_levels(release).items()} == levels


# Failing command of kproto -> Kafka's tool, and the arguments with which the tool must also fail.
FAILING = {
    "topics describe absent": ("TopicCommand", "--describe --topic absent"),
    "topics delete absent --execute": ("TopicCommand", "--delete --topic absent"),
    "topics create other --config no.such=1": ("TopicCommand", "--create --topic other --config no.such=1"),
    "quotas alter --user a --set producer_byte_rate=0.5 --execute": (
        "ConfigCommand",
        "--alter --entity-type users --entity-name a --add-config producer_byte_rate=0.5",
    ),
    "cluster upgrade transaction.version=9 --execute": (
        "FeatureCommand",
        "upgrade --feature transaction.version=9",
    ),
    "transactions describe absent": ("TransactionsCommand", "describe --transactional-id absent"),
}


@pytest.mark.parametrize("words", FAILING)
def test_a_command_fails_if_kafkas_tool_fails(
    words: str, authorizing: Server, tools: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`FAILING` omits failures after which Kafka's tools exit with 0."""
    name, arguments = FAILING[words]
    kafka = exit_code(tools, name, "--bootstrap-server", authorizing.bootstrap, *arguments.split())
    assert main([*words.split(), "--bootstrap", authorizing.bootstrap]) == kafka == 1
    assert capsys.readouterr().err.startswith(f"kproto {words.split()[0]}")
