"""docs/coming-from/kcat.md lists all flags of kcat, and working kproto commands for common kcat calls."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator

import pytest

from consumer import Admin, Producer, TopicPartition
from consumer.schema_registry.avro import AvroSerializer
from consumer.schema_registry.registry import Registry
from kproto.broker.server import Server
from tests.cli.stage import Shell
from tests.comparison_pages import FOLDER, code, rows
from tests.consumer.schema_registry.stage import registry_server
from tests.kcat import FLAGS

PAGE = FOLDER / "kcat.md"
# 2026-11-28T09:30:00Z, the timestamp of the first record. Each further record is ten minutes later.
BEGIN_MS = 1_795_858_200_000
ROWS = [
    (kcat, re.findall("`(kproto .*?)`", ours))
    for kcat, ours in re.findall(r"^\| `(kcat .*?)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
]
# Maps kcat calls of the page about kcat to the lines that the equivalent kproto commands must print. The
# commands for all other calls of the page only have to succeed.
PRINTED = {
    "kcat -C -t flights -e": [f"v{n}" for n in range(10)],
    "kcat -C -t flights -o -5 -e": [f"v{n}" for n in range(5, 10)],
    "kcat -C -t flights -p 0 -o 3 -c 2": ["v3", "v4"],
    "kcat -C -t flights -o s@1795858200000 -o e@1795861800000 -e": [f"v{n}" for n in range(6)],
    "kcat -C -t flights -K: -e": [f"k{n}\tv{n}" for n in range(10)],
    "kcat -C -t flights -s value=avro -r http://localhost:8081 -e": ['"BER"'],
    "kcat -Q -t flights:0:1795858200000": ["flights:0:0"],
}


@pytest.fixture(autouse=True)
def flights(broker: Server) -> Iterator[None]:
    """Write ten records to the first partition of the topic `flights`, and none to the second one."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topics({"flights": 2})
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send(
                    "flights",
                    b"v%d" % number,
                    key=b"k%d" % number,
                    partition=0,
                    timestamp=BEGIN_MS + number * 600_000,
                )
        yield
        admin.delete_topics(["flights"])


@pytest.fixture
def registry(broker: Server) -> Iterator[str]:
    """Replace the records of `flights` with one Avro string, and yield its schema registry's address."""
    pytest.importorskip("fastavro")
    pytest.importorskip("urllib3")
    with registry_server() as server, Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("flights", 0): 10})
        serializer = AvroSerializer(Registry.at(server.url), '"string"')
        with Producer(broker.bootstrap, value_serializer=serializer) as producer:
            producer.send("flights", "BER", partition=0)
        yield server.url


def test_the_table_has_calls_of_all_modes() -> None:
    assert {kcat.split()[1] for kcat, _ in ROWS} == {"-L", "-C", "-G", "-P", "-Q"}
    assert PRINTED.keys() <= {kcat for kcat, _ in ROWS}


@pytest.mark.parametrize(("kcat", "commands"), ROWS, ids=[kcat for kcat, _ in ROWS])
def test_the_command_does_what_the_call_of_kcat_does(
    kcat: str,
    commands: list[str],
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    assert commands
    for command in commands:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"k:v\n")))
        words = shlex.split(command)[1:]
        if "--registry" in words:
            words[words.index("--registry") + 1] = request.getfixturevalue("registry")
        # Without a number of records, --follow would wait until Ctrl-C.
        lines = shell("", *words, *(["--count", "10"] if "--follow" in words else []))
        assert lines == PRINTED.get(kcat, lines)


def test_the_page_has_every_flag() -> None:
    """docs/coming-from/kcat.md lists all FLAGS.

    tests/conformance/test_coming_from_kcat.py compares FLAGS with kcat.
    """
    named = {part.split()[0].lstrip("-") for row in rows("kcat", "^(Modes|Flags)") for part in code(row[0])}
    assert named == set(FLAGS)
