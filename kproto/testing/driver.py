"""One member of a group that obeys its standard input, over real sockets: any client's machine, or our own.

The protocol is that of the drivers of the original clients (tests/conformance/members), so that the same play
can be given to an original and to its machine. Commands come one a line; the end of the input means close:

    subscribe T..  pattern RE  unsubscribe  assign T:P:O..  seek T:P:O  poll on|off  sleep MS  commit
    commit-async  rebalance REASON  assignment  pause  resume  close [stay]

and lines "TIME WORD REST" go out, TIME in seconds since 1970:

    ready            done COMMAND            closed
    assigned T:P..   revoked T:P..   lost T:P..    every callback, before anything else in it
    R T:P OFFSET                                   a record
    commit ok | commit NAME TEXT                   what became of a commit
    error NAME TEXT                                poll or a command failed; polling goes on after 0.3 s,
                                                   and is not told again that nobody lets it in

Rules that hold here:

* The application is one loop, as in the drivers: a command if there is one, else a poll of 50 ms, from
  `subscribe` on. While it sleeps, nothing is polled; what the machine does by itself goes on.
* A callback says its line, commits if the configuration has `commit_in_revoke`, sleeps `revoke_ms`, returns.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from io import TextIOWrapper
from itertools import cycle
from queue import Empty, SimpleQueue
from random import Random
from typing import Any, TextIO

from consumer.addresses import addresses
from consumer.blocking.sockets import Sockets

from ..errors import ConfigError, ConnectionFailed
from ..group.subscription import TopicPartition
from ..models import contract as c
from ..models.index import Model, load_model, model_names
from .model_connections import BOOTSTRAP, Wires

POLL_MS = 50
AFTER_ERROR_MS = 300
CONNECT_MS = 100  # How long to wait before the next bootstrap address is tried.
# How long a member looks for a broker until it says that there is none, and ends if nothing comes behind.
GIVE_UP_MS = 2_000
# How long a driver polls on after unsubscribe, where the callback needs a poll.
LINGERS = {"librdkafka": 1_500}

NAMES = ("kproto", *model_names())  # Who can be driven.


def drive(name: str, bootstrap: str, client_id: str, group: str, conf: Mapping[str, Any]) -> None:
    """Run the member until it is closed. Raises ConfigError for names and options that there are not, and
    ConnectionFailed where all commands have come and a machine finds no broker."""
    if name == "kproto":
        from .consumer_driver import Driven

        Driven(bootstrap, client_id, group, conf, Commands(sys.stdin)).run()
    elif name in model_names():
        config = configuration(name, client_id, group, conf)
        Machine(name, load_model(name), bootstrap, config, conf, Commands(sys.stdin)).run()
    else:
        raise ConfigError("client", name, f"allowed: {', '.join(NAMES)}")


def configuration(name: str, client_id: str, group: str, conf: Mapping[str, Any]) -> c.ModelConfig:
    """The drivers' JSON as the configuration of a client's machine: its own words go to `extra`. ConfigError:
    what is no word of it."""
    known = {field.name for field in fields(c.ModelConfig)} - {"client_id", "group_id", "random", "extra"}
    said = {key: value for key, value in conf.items() if key in known and value is not None}
    if isinstance(said.get("assignors"), list):
        said["assignors"] = tuple(said["assignors"])
    if "wait_ms" in conf:
        said["fetch_wait_ms"] = conf["wait_ms"]
    extra = {key: value for key, value in conf.items() if key not in known and key not in DRIVERS_OWN}
    for key, value in extra.items():
        if near := get_close_matches(key, sorted(known | DRIVERS_OWN), 1, 0.8):
            raise ConfigError(key, value, f"did you mean {near[0]}?")
        if key not in WORDS.get(name, {key}):
            allowed = ", ".join(sorted(known | DRIVERS_OWN | WORDS[name]))
            raise ConfigError(key, value, f"options of {name}: {allowed}")
    return c.ModelConfig(client_id=client_id, group_id=group, random=Random().random, extra=extra, **said)


# What the configuration says to the application and not to its client.
DRIVERS_OWN = {"commit_in_revoke", "revoke_ms", "manual_poll", "once", "wait_ms"}

_SARAMA = {
    "ChannelBufferSize",
    "Consumer.MaxProcessingTime",
    "Consumer.Retry.Backoff",
    "Consumer.Retry.Max",
    "Consumer.Return.Errors",
    "Fetch.Default",
    "Fetch.Max",
    "Fetch.MaxBytes",
    "Fetch.Min",
    "Group.Offsets.Synchronization.DwellTime",
    "Group.Rebalance.Retry.Backoff",
    "Group.Rebalance.Retry.Max",
    "Group.ResetInvalidOffsets",
    "Metadata.Full",
    "Metadata.Retry.Backoff",
    "Metadata.Retry.Max",
    "Offsets.Retention",
    "Offsets.Retry.Max",
    "Once",
    "Version",
}

# What `extra` may have, in JSON, for each client.
WORDS: Mapping[str, set[str]] = {
    "java": set(),
    "java-2.6": set(),
    "kafka-go": {"JoinGroupBackoff", "MaxBytes", "QueueCapacity"},
    "librdkafka": {
        "binding",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "queued.min.messages",
        "version",
    },
    "sarama": _SARAMA,
    "sarama-cluster": _SARAMA | {"Blacklist", "PartitionStrategy", "Return.Notifications", "Whitelist"},
}


def hears_disconnects(module: Model) -> bool:
    return getattr(module, "HEARS_DISCONNECTS", False) is True


class Commands:
    """The lines of a stream, read by a thread of their own; the last one is always a close."""

    def __init__(self, stream: TextIO) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        self.wake: Callable[[], None] = lambda: None
        self.ended = False  # the close is there: nothing comes behind it
        given: object = stream
        if isinstance(given, TextIOWrapper):  # what can't be read is escaped, as what can't be shown
            given.reconfigure(errors="backslashreplace")
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: TextIO) -> None:
        try:
            for line in stream:
                if line.strip():
                    self._lines.put(line.strip())
                    self.ended = self.ended or line.split()[0] == "close"
                    self.wake()
        finally:
            self.ended = True
            self._lines.put("close")
            self.wake()

    @property
    def waiting(self) -> bool:
        return not self._lines.empty()

    def next(self, seconds: float = 0) -> str | None:
        """The next command; None when none came in `seconds`."""
        try:
            return self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
        except Empty:
            return None


def say(*words: object) -> None:
    """A line, in one piece: a future's callback may say another one at the same moment."""
    sys.stdout.write(" ".join([f"{time.time():.6f}", *map(str, words)]) + "\n")
    sys.stdout.flush()


def written(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(sorted(f"{partition.topic}:{partition.partition}" for partition in partitions))


def partition(text: str) -> tuple[TopicPartition, int | None]:
    """T:P or T:P:OFFSET."""
    topic, number, *offset = text.split(":")
    return TopicPartition(topic, int(number)), int(offset[0]) if offset else None


class Machine:
    """Drives a machine. Everything runs on one thread, as the application of an original does."""

    def __init__(
        self,
        name: str,
        module: Model,
        bootstrap: str,
        config: c.ModelConfig,
        conf: Mapping[str, Any],
        commands: Commands,
    ) -> None:
        self.name = name
        self.module = module
        self.bootstrap = addresses(bootstrap)
        self.conf = conf
        self.state = module.start(config)
        self.commands = commands
        self.wires = Wires(config.client_id, Sockets())
        commands.wake = self.wires.wake
        self.polling = False
        self.owned: set[TopicPartition] = set()
        self.polled: c.FinishPoll | None = None
        self.committed: dict[object, tuple[str, str] | None] = {}
        self.waited: set[object] = set()
        self.callbacks: deque[c.RunCallback] = deque()
        self.calling = False
        self.closed = False

    def run(self) -> None:
        say("ready")
        try:
            self._connect()
        except ConnectionFailed:
            say("closed")
            self.wires.close()
            raise
        while not self.closed:
            line = self.commands.next()
            if line is not None:
                try:
                    self._obey(line)
                except (ConfigError, ValueError, IndexError, OverflowError, re.error) as error:
                    say("error", type(error).__name__, error)
                else:
                    if not self.closed:
                        say("done", line)
            elif self.polling:
                self._poll()
            else:
                self._until(lambda: self.commands.waiting)
        say("closed")
        self.wires.close()

    def _connect(self) -> None:
        """Ask the bootstrap brokers, one after the other, until one says what it offers.

        Commands wait so long. Raises ConnectionFailed when there is none, and nobody will say more.
        """
        begun, told = Sockets.now(), False
        for host, port in cycle(self.bootstrap):
            self.wires.ask(host, port)
            end = Sockets.now() + CONNECT_MS
            while self.wires.offered is None and Sockets.now() < end:
                self.wires.wait((end - Sockets.now()) / 1000)
            if self.wires.offered is not None:
                self._do(c.Started(tuple(self.bootstrap), self.wires.offered))
                return
            if Sockets.now() <= begun + GIVE_UP_MS:
                continue
            whys = {
                f"{host}:{port}": self.wires.broke.get(c.Address(host, port, BOOTSTRAP), "no answer")
                for host, port in self.bootstrap
            }
            error = ConnectionFailed.everywhere(whys)
            if not told:
                say("error", type(error).__name__, error)
                told = True
            if self.commands.ended:
                raise error

    # ---- the machine

    def _do(self, event: c.ModelEvent) -> None:
        for action in self.module.step(self.state, event, Sockets.now()):
            self._perform(action)

    def _perform(self, action: c.ModelAction) -> None:
        match action:
            case c.SendRequest():
                self.wires.send(action)
            case c.CloseConnection():
                self.wires.hangup(action)
            case c.FinishPoll():
                self.polled = action
            case c.RunCallback():
                self.callbacks.append(action)
            case c.FinishCommit(token=token, error=error):
                self.committed[token] = error
                if token not in self.waited:
                    say("commit", *(error or ("ok",)))
            case c.Notify(kind=kind, name=name, text=text):
                if kind == "log":
                    print(f"{time.time():.6f}", name, text, file=sys.stderr, flush=True)
                elif kind == "notification":
                    say(kind, name, text)
                elif kind == "returned":
                    say("consume returned")
                else:
                    say("error", name, text)
            case c.FinishClose():
                self.closed = True

    def _until(self, done: Callable[[], bool], end: int | None = None) -> None:
        """Let the machine live until `done`, or until `end`."""
        while not done():
            now = Sockets.now()
            due = self.module.next_deadline(self.state)
            if self.callbacks and not self.calling:
                self._call(self.callbacks.popleft())
            elif due is not None and due <= now:
                self._do(c.DeadlineReached())
            elif end is not None and end <= now:
                return
            else:
                first = min((at for at in (due, end) if at is not None), default=None)
                for event in self.wires.wait(None if first is None else (first - now) / 1000):
                    if not isinstance(event, c.ConnectionLost) or hears_disconnects(self.module):
                        self._do(event)

    def _sleep(self, ms: int) -> None:
        self._until(lambda: False, Sockets.now() + ms)

    # ---- the application

    def _call(self, tell: c.RunCallback) -> None:
        self.calling = True
        say(tell.kind, written(tell.partitions))
        if tell.kind == "assigned":
            self.owned |= set(tell.partitions)
        elif tell.kind in ("revoked", "lost"):
            self.owned -= set(tell.partitions)
            if tell.kind == "revoked":
                if self.conf.get("commit_in_revoke"):
                    self._commit()
                if self.conf.get("revoke_ms"):
                    self._sleep(self.conf["revoke_ms"])
        self.calling = False
        if tell.wait:
            self._do(c.CallbackReturned())

    def _commit(self) -> None:
        token = object()
        self.waited.add(token)
        self._do(c.CommitCalled(token))
        self._until(lambda: token in self.committed)
        say("commit", *(self.committed[token] or ("ok",)))

    def _poll(self) -> None:
        self.polled = None
        self._do(c.PollCalled(POLL_MS))
        self._until(lambda: self.polled is not None or self.closed)
        polled: c.FinishPoll | None = self.polled
        if polled is None:
            return
        if polled.records:
            now = f"{time.time():.6f} R "
            print(
                "\n".join(
                    f"{now}{record.partition.topic}:{record.partition.partition} {record.offset}"
                    for record in polled.records
                ),
                flush=True,
            )
        if polled.error is not None:
            say("error", *polled.error)
            self._sleep(AFTER_ERROR_MS)

    def _obey(self, line: str) -> None:
        word, *rest = line.split()
        match word:
            case "subscribe":
                self._do(c.SubscribeCalled(tuple(rest)))
                self.polling = not self.conf.get("manual_poll")
            case "pattern":
                self._do(c.SubscribeCalled(pattern=rest[0]))
                self.polling = not self.conf.get("manual_poll")
            case "unsubscribe":
                self._unsubscribe()
            case "assign":
                self._do(c.AssignCalled(dict(partition(one) for one in rest)))
                self.polling = not self.conf.get("manual_poll")
            case "seek":
                where, offset = partition(rest[0])
                if offset is None:
                    raise ConfigError("command", line, "seek T:P:OFFSET")
                self._do(c.SeekCalled(where, offset))
            case "poll":
                self.polling = rest[0] == "on"
            case "sleep":
                self._sleep(int(rest[0]))
                say("slept")
            case "commit":
                self._commit()
            case "commit-async":
                self._do(c.CommitCalled(object(), wait=False))
            case "rebalance":
                self._do(c.RebalanceCalled(" ".join(rest)))
            case "assignment":
                say("assignment", written(self.owned))
            case "pause":
                self._do(c.PauseCalled(tuple(sorted(self.owned))))
            case "resume":
                self._do(c.ResumeCalled(tuple(sorted(self.owned))))
            case "close":
                self._do(c.CloseCalled(stay="stay" in rest))
                self._until(lambda: self.closed and not self.callbacks)
            case _:
                raise ConfigError("command", line, "see the head of kproto/testing/driver.py")

    def _unsubscribe(self) -> None:
        self._do(c.UnsubscribeCalled())
        end = Sockets.now() + LINGERS.get(self.name, 0)
        while Sockets.now() < end:
            self._poll()
        self._until(lambda: not self.callbacks)
        self.polling = False
        say("unsubscribed")
