"""The page about Kafka's command-line tools lists every tool in Kafka's jars, with each action and option."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kproto.messages.index import KAFKA_RELEASE
from tests.comparison_pages import code, rows
from tests.conformance import judges

pytestmark = pytest.mark.java

LISTER: Final = Path(__file__).parent / "java" / "ToolOptions.java"
PAGE: Final = "kafka-tools"
WITHOUT_COUNTERPART: Final = "Tools without a counterpart"

# Maps a class to the script that starts it. A class is left out if the script's name follows from the class
# name. For example, Acls and AclsCommand both give kafka-acls.
SCRIPTS: Final = {
    "AclCommand": "kafka-acls",
    "BrokerApiVersionsCommand": "kafka-broker-api-versions",
    "ClientCompatibilityTest": "ClientCompatibilityTest",
    "ConfigCommand": "kafka-configs",
    "ConnectInternalTopics": "connect-internal-topics",
    "ConnectPluginPath": "connect-plugin-path",
    "ConsumerGroupCommand": "kafka-consumer-groups",
    "ConsumerPerformance": "kafka-consumer-perf-test",
    "DelegationTokenCommand": "kafka-delegation-tokens",
    "DumpLogSegments": "kafka-dump-log",
    "EndToEndLatency": "kafka-e2e-latency",
    "FeatureCommand": "kafka-features",
    "GetOffsetShell": "kafka-get-offsets",
    "LogCompactionTester": "LogCompactionTester",
    "OAuthCompatibilityTool": "OAuthCompatibilityTool",
    "ProducerPerformance": "kafka-producer-perf-test",
    "ReplicaVerificationTool": "kafka-replica-verification",
    "ShareConsumerPerformance": "kafka-share-consumer-perf-test",
    "ShareGroupCommand": "kafka-share-groups",
    "StreamsGroupCommand": "kafka-streams-groups",
    "StreamsResetter": "kafka-streams-application-reset",
    "TestRaftServer": "TestRaftServer",
    "TopicCommand": "kafka-topics",
    "TransactionalMessageCopier": "TransactionalMessageCopier",
}


def script(class_name: str) -> str:
    name = class_name.rpartition(".")[2]
    words = re.findall("[A-Z][a-z]+", re.sub("(Command|Tool|Shell)$", "", name))
    return SCRIPTS.get(name, "-".join(["kafka", *map(str.lower, words)]))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """Return the actions and options in the help text of each tool."""
    jars = judges.kafka_jars(KAFKA_RELEASE)
    paths = [
        str(path)
        for name in ("kafka-tools-[0-9]*.jar", "kafka_*.jar")
        for path in Path(jars.removesuffix("*")).glob(name)
    ]
    assert len(paths) == 2
    command = [
        judges.java(),
        "-Djava.security.manager=allow",
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
        jars,
        str(LISTER),
        *paths,
    ]
    working_folder = tmp_path_factory.mktemp("tools")
    done = subprocess.run(command, capture_output=True, text=True, cwd=working_folder, timeout=400)
    assert done.returncode == 0, done.stderr[-500:]
    options_by_tool: defaultdict[str, set[str]] = defaultdict(set)
    for class_name, *words in map(str.split, done.stdout.splitlines()):
        options_by_tool[script(class_name)] |= {*words}
    assert len(options_by_tool) > 35
    return options_by_tool


def words_of(heading: str) -> set[str]:
    """Return the actions and options in the first column below a heading."""
    cells = " ".join(part for row in rows(PAGE, heading) for part in code(row[0]))
    return {*re.findall(r"(?<![\w-])(?:--)?[a-z][\w.-]*", cells)}


def test_the_page_has_every_tool_and_every_option(tools: Mapping[str, set[str]]) -> None:
    common, elsewhere = words_of("^Options of all tools"), words_of(WITHOUT_COUNTERPART)
    elsewhere |= {part for row in rows(PAGE, WITHOUT_COUNTERPART) for part in code(row[0])}
    missing = {
        tool: options - words_of(f"^{tool}$") - common
        for tool, options in tools.items()
        if tool not in elsewhere
    }
    assert {tool: sorted(options) for tool, options in missing.items() if options} == {}


def test_the_page_has_no_option_that_the_tools_lack(tools: Mapping[str, set[str]]) -> None:
    every_option = set().union(*tools.values())
    unknown = {
        tool: words_of(f"^{tool}$") - options
        for tool, options in tools.items()
        if any(rows(PAGE, f"^{tool}$"))
    }
    values = {"print.key", "parse.key", "key.separator", "null.marker", "parse.headers", "true"}
    assert {tool: sorted(words - values) for tool, words in unknown.items() if words - values} == {}
    assert words_of("^Options of all tools") - every_option == set()
