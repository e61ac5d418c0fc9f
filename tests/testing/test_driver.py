"""The driver runs kproto's consumer or a model: commands on stdin control it, and it prints the results."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest

from kproto.broker.server import Server, running
from kproto.cli import main
from kproto.errors import ConfigError, ConnectionFailed
from kproto.group.subscription import TopicPartition
from kproto.messages.metadata import MetadataRequest
from kproto.models import contract as c
from kproto.models.index import MODELS, load_model
from kproto.testing.driver import WORDS, ModelDriver, configuration
from kproto.testing.driver_protocol import Commands, print_line
from kproto.testing.model_connections import ModelConnections
from tests.testing.stage import MemberProcess

SOON = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
}


@pytest.fixture
def broker() -> Iterator[Server]:
    with running(topics={"t": 2}, settings=SOON) as server:
        yield server


def produce(bootstrap: str, count: int) -> None:
    from consumer import Producer

    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % 2)


def test_commands_control_kprotos_consumer(broker: Server) -> None:
    produce(broker.bootstrap, 4)
    conf = {"reset": "earliest", "session_ms": 3000, "heartbeat_ms": 200, "assignors": ["range"]}
    member = MemberProcess("--as", "kproto", broker.bootstrap, "A-1", "g", json.dumps(conf))
    member.until("ready")
    member.send("subscribe t")
    member.until("done subscribe t")
    assert member.until("assigned") == "assigned t:0 t:1"
    read = {member.until("R") for _ in range(4)}
    assert read == {"R t:0 0", "R t:0 1", "R t:1 0", "R t:1 1"}
    member.send("commit")
    member.until("commit ok")
    member.until("done commit")
    member.send("assignment")
    member.until("assignment t:0 t:1")
    member.send("close")
    member.until("closed")
    assert "revoked t:0 t:1" in member.lines
    assert member.process.wait(10) == 0


def test_the_end_of_input_closes_the_member(broker: Server) -> None:
    member = MemberProcess("--as", "kproto", broker.bootstrap, "A-1", "g", "{}")
    member.until("ready")
    assert member.process.stdin is not None
    member.process.stdin.close()
    member.until("closed")
    assert member.process.wait(10) == 0


def test_an_unknown_command_is_an_error(broker: Server) -> None:
    member = MemberProcess("--as", "kproto", broker.bootstrap, "A-1", "g", "{}")
    member.send("dance")
    assert "dance" in member.until("error ConfigException")
    member.send("close")
    member.until("closed")
    assert "done dance" not in member.lines
    member.process.wait(10)


def test_the_error_for_an_unknown_client_lists_the_clients(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["member", "--as", "nobody", "127.0.0.1:1", "A", "g", "{}"]) == 2
    assert "client" in capsys.readouterr().err


def test_a_configuration_that_is_not_json_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["member", "--as", "kproto", "127.0.0.1:1", "A", "g", "{"])
    assert end.value.code == 2
    assert "is not valid JSON" in capsys.readouterr().err


def test_a_line_is_printed_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is printed in one write.

    Commit callbacks print from a second thread, so a line that is written in pieces could be mixed with
    another line.
    """
    pieces: list[str] = []

    class RecordedOutput(io.StringIO):
        def write(self, text: str, /) -> int:
            pieces.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stdout", RecordedOutput())
    print_line("done", "poll-once 50")
    assert len(pieces) == 1
    assert pieces[0].endswith(" done poll-once 50\n")


def test_options_of_the_application_are_not_passed_to_the_client() -> None:
    conf = {"assignors": ["range"], "revoke_ms": 5, "wait_ms": 7, "queued.min.messages": 3, "instance": None}
    config = configuration("librdkafka", "A", "g", conf)
    assert config.assignors == ("range",)
    assert (config.fetch_wait_ms, config.instance) == (7, None)
    assert dict(config.extra) == {"queued.min.messages": 3}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_error_for_an_unknown_option_lists_the_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = json.dumps(dict.fromkeys(WORDS[name]) | {"bananas": 1})
    assert main(["member", "--as", name, "127.0.0.1:1", "A", "g", conf]) == 2
    message = capsys.readouterr().err
    assert f"bananas=1 is not allowed; options of {name}: " in message
    assert all(word in message for word in ("session_ms", "manual_poll", *WORDS[name]))


def test_each_option_that_a_model_reads_is_allowed() -> None:
    option_read = re.compile(r"""(?:number|_text|option|extra\.get)\((?:config, )?"([A-Za-z.]+)",?""")
    # Options whose values are objects, which JSON cannot represent.
    objects = {"interceptor.classes", "partition.assignment.strategy"}
    for name, module in MODELS.items():
        path = Path(import_module(f"kproto.models.{module}").__file__ or "")
        files = path.parent.glob("*.py") if path.name == "__init__.py" else [path]
        options = {option for file in files for option in option_read.findall(file.read_text())}
        assert options <= WORDS[name] | objects


def test_a_command_that_is_not_utf_8_is_read_with_escapes() -> None:
    commands = Commands(io.TextIOWrapper(io.BytesIO(b"pattern caf\xe9\nassignment\n"), encoding="utf-8"))
    assert [commands.next(20) for _ in range(3)] == [r"pattern caf\xe9", "assignment", "close"]


def test_an_input_error_closes_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenInput(io.StringIO):
        def __next__(self) -> str:
            raise OSError(errno.EIO, "Input/output error")

    reports: SimpleQueue[threading.ExceptHookArgs] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", reports.put)
    assert Commands(BrokenInput()).next(20) == "close"
    assert reports.get(timeout=20).exc_type is OSError


@pytest.mark.parametrize("name", ["java", "java-2.6", "sarama", "kafka-go"])
def test_the_error_for_an_unknown_reset_policy_lists_the_policies(name: str) -> None:
    with pytest.raises(ConfigError, match=r"reset='late' is not allowed; .*earliest.*latest"):
        load_model(name).start(configuration(name, "A", "g", {"reset": "late"}))


# The driver with a small model, which sends a Metadata request in each poll and runs a callback in close.


@dataclass
class Asker:
    """A model that is its own state. It requests metadata in each poll, and the response ends the poll."""

    events: list[c.ModelEvent] = field(default_factory=list[c.ModelEvent])
    to: c.Address | None = None
    VERSIONS: ClassVar = {3: 9}

    def start(self, config: c.ModelConfig) -> Asker:
        return self

    def next_deadline(self, state: Any) -> int | None:
        return None

    def step(self, state: Any, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
        self.events.append(event)
        match event:
            case c.Started(bootstrap=bootstrap):
                self.to = c.Address(*bootstrap[0])
            case c.PollCalled():
                assert self.to is not None
                return [c.SendRequest(self.to, MetadataRequest(topics=None), 9)]
            case c.ResponseReceived():
                return [
                    c.FinishPoll((c.ModelRecord(TopicPartition("t", 0), len(self.events), 0, None, b""),))
                ]
            case c.RequestFailed(why=why):
                return [c.FinishPoll(error=("Failed", why))]
            case c.CommitCalled(token=token):
                return [c.FinishCommit(token)]
            case c.CloseCalled():
                return [c.RunCallback("revoked", (TopicPartition("t", 0),))]
            case c.CallbackReturned():
                return [c.FinishClose()]
            case _:
                pass
        return []


@pytest.fixture
def early_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models report a missing broker after 0.5 s instead of 2 s."""
    monkeypatch.setattr("kproto.testing.driver.REPORT_NO_BROKER_MS", 500)


def run_asker(bootstrap: str, *lines: str, **conf: Any) -> tuple[Asker, ModelDriver]:
    asker = Asker()
    commands = Commands(io.StringIO("\n".join(lines) + "\n"))
    driver = ModelDriver("asker", asker, bootstrap, configuration("asker", "A", "g", conf), conf, commands)
    driver.run()
    return asker, driver


def words(text: str) -> list[str]:
    return [line.partition(" ")[2] for line in text.splitlines()]


def test_a_model_polls_between_commands(broker: Server, capsys: pytest.CaptureFixture[str]) -> None:
    asker, _ = run_asker(broker.bootstrap, "subscribe t", "sleep 1", "commit", "close")
    assert words(capsys.readouterr().out) == [
        "ready",
        "done subscribe t",
        "slept",
        "done sleep 1",
        "commit ok",
        "done commit",
        "revoked t:0",
        "closed",
    ]
    assert isinstance(asker.events[0], c.Started)
    assert asker.events[0].offered[3][1] >= 9


def test_a_callback_commits_before_it_returns_if_configured(
    broker: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    asker, _ = run_asker(broker.bootstrap, "close", commit_in_revoke=True)
    assert [type(event).__name__ for event in asker.events] == [
        "Started",
        "CloseCalled",
        "CommitCalled",
        "CallbackReturned",
    ]
    assert words(capsys.readouterr().out) == ["ready", "revoked t:0", "commit ok", "closed"]


def test_a_seek_without_an_offset_is_rejected(broker: Server, capsys: pytest.CaptureFixture[str]) -> None:
    asker, _ = run_asker(broker.bootstrap, "seek t:0", "close")
    assert not any(isinstance(event, c.SeekCalled) for event in asker.events)
    assert "error ConfigError command='seek t:0' is not allowed; seek T:P:OFFSET" in capsys.readouterr().out


@pytest.mark.usefixtures("early_reports")
def test_a_missing_broker_is_reported_and_ends_the_member_after_its_last_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConnectionFailed):
        run_asker("127.0.0.1:1", "subscribe t", "commit", "close")
    assert words(capsys.readouterr().out) == [
        "ready",
        "error ConnectionFailed no broker at 127.0.0.1:1: connection refused",
        "closed",
    ]


@pytest.mark.usefixtures("early_reports")
def test_a_broker_without_responses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionFailed):
            run_asker(f"127.0.0.1:1,{address}", "close")
    line = f"error ConnectionFailed no broker at 127.0.0.1:1: connection refused; at {address}: no answer"
    assert words(capsys.readouterr().out) == ["ready", line, "closed"]


@pytest.mark.parametrize(
    "name",
    [
        "kafka-go",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("java", "sarama", "librdkafka")),
    ],
)
def test_a_model_without_a_broker_exits_with_1(name: str) -> None:
    member = MemberProcess("--as", name, "127.0.0.1:1", "A-1", "g")
    for line in ("commit", "close"):
        member.send(line)
    member.until("error ConnectionFailed no broker at 127.0.0.1:1: connection refused")
    member.until("closed")
    assert "done commit" not in member.lines
    assert member.process.wait(10) == 1


def test_a_missing_broker_is_reported_while_input_is_open() -> None:
    member = MemberProcess("--as", "java", "127.0.0.1:1", "A-1", "g")
    timer = threading.Timer(20, member.process.kill)
    timer.start()
    member.until("error ConnectionFailed")
    member.send("close")
    member.until("closed")
    timer.cancel()


# -- the connections


def ask(address: c.Address, timeout_ms: int = 20_000) -> c.SendRequest:
    return c.SendRequest(address, MetadataRequest(topics=None), 9, timeout_ms)


def receive(connections: ModelConnections, count: int) -> list[c.ResponseReceived | c.RequestFailed]:
    results: list[c.ResponseReceived | c.RequestFailed] = []
    while len(results) < count:
        results += connections.wait(20)
    return results


@pytest.fixture
def connections() -> Iterator[ModelConnections]:
    from consumer.blocking.sockets import Sockets

    connections = ModelConnections("A", Sockets())
    yield connections
    connections.close()


def test_responses_come_in_the_order_of_the_requests(broker: Server, connections: ModelConnections) -> None:
    host, port = broker.bootstrap.split(":")
    sent = [ask(c.Address(host, int(port))) for _ in range(5)]
    for request in sent:
        connections.send(request)
    answers = receive(connections, 5)
    assert [id(answer.request) for answer in answers] == [id(request.request) for request in sent]
    assert all(isinstance(answer, c.ResponseReceived) for answer in answers)


def test_each_lane_has_its_own_connection(broker: Server, connections: ModelConnections) -> None:
    host, port = broker.bootstrap.split(":")
    left, right = c.Address(host, int(port), "left"), c.Address(host, int(port), "right")
    first, second = ask(left), ask(right)
    connections.send(first)
    connections.send(second)
    connections.close_connection(c.CloseConnection(left))
    answers = {id(result.request): result for result in receive(connections, 2)}
    assert isinstance(answers[id(first.request)], c.RequestFailed)
    assert isinstance(answers[id(second.request)], c.ResponseReceived)


def test_a_refused_connection_fails_its_requests(connections: ModelConnections) -> None:
    connections.send(ask(c.Address("127.0.0.1", 1)))
    (failed,) = receive(connections, 1)
    assert isinstance(failed, c.RequestFailed)
    assert not failed.late


def test_a_request_that_times_out_fails_once(connections: ModelConnections) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        connections.send(ask(c.Address("127.0.0.1", silent.getsockname()[1]), timeout_ms=30))
        (failed,) = receive(connections, 1)
        assert isinstance(failed, c.RequestFailed)
        assert failed.late
        assert connections.wait(0.01) == []


def test_the_next_request_reopens_a_broken_connection(broker: Server, connections: ModelConnections) -> None:
    host, port = broker.bootstrap.split(":")
    address = c.Address(host, int(port))
    connections.send(ask(address))
    connections.close_connection(c.CloseConnection(address))
    connections.send(ask(address))
    assert [type(result).__name__ for result in receive(connections, 2)] == [
        "RequestFailed",
        "ResponseReceived",
    ]
