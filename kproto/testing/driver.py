"""A group member on real sockets, controlled through standard input: a model or kproto's consumer.

The drivers of the original clients use the same protocol (tests/conformance/members). So an original client
and its model can execute the same commands.

The member closes when its input ends. Each line of input is one of these commands:

    subscribe T..  pattern RE  unsubscribe  assign T:P:O..  seek T:P:O  poll on|off  sleep MS  commit
    commit-async  rebalance REASON  assignment  pause  resume  close [stay]

The output consists of lines "TIME WORD ARGUMENTS" with TIME in seconds since 1970:

    ready            done COMMAND            closed
    assigned T:P..   revoked T:P..   lost T:P..    a callback has begun
    R T:P OFFSET                                   a record
    commit ok | commit NAME TEXT                   the result of a commit
    error NAME TEXT                                poll or a command failed; polling continues after 0.3 s.
                                                   Repeated login errors are printed once

Rules:

* The application is one loop, as in the drivers of the original clients. Without a command to execute, the
  loop polls for 50 ms. Before `subscribe`, `pattern` or `assign`, and after `poll off`, it only waits for
  the next command.

* During `sleep` the application does not poll, but the model's timers run.

* A callback prints its output line first. A callback for revoked partitions then commits if the configuration
  has `commit_in_revoke`, and sleeps for `revoke_ms`.
"""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from itertools import cycle
from random import Random
from typing import Any

from consumer.addresses import addresses
from consumer.blocking.sockets import Sockets

from ..addresses import address_text
from ..errors import ConfigError, ConnectionFailed
from ..group.subscription import TopicPartition
from ..models import contract as c
from ..models.index import Model, load_model, model_names
from .consumer_driver import CommandDriver
from .driver_protocol import (
    AFTER_ERROR_MS,
    DRIVERS_OWN,
    POLL_MS,
    Commands,
    format_partitions,
    parse_partition,
    print_line,
)
from .model_connections import BOOTSTRAP, ModelConnections

# The wait in ms before the next bootstrap address is tried.
CONNECT_MS = 100
# How long in ms a member searches for a broker before it reports that no broker responds. The member then
# continues the search, but ends if its input has ended or contains `close`.
REPORT_NO_BROKER_MS = 2_000
# The time in ms for which a driver polls after unsubscribe: librdkafka calls the callback for revoked
# partitions in poll.
POLL_AFTER_UNSUBSCRIBE_MS = {"librdkafka": 1_500}

NAMES = ("kproto", *model_names())  # The clients that can be driven.


def drive(name: str, bootstrap: str, client_id: str, group: str, conf: Mapping[str, Any]) -> None:
    """Run a member until it is closed.

    Raises ConfigError for an unknown client or option. Raises ConnectionFailed if a model finds no broker and
    no commands remain.
    """
    if name == "kproto":
        CommandDriver(bootstrap, client_id, group, conf, Commands(sys.stdin)).run()
    elif name in model_names():
        config = configuration(name, client_id, group, conf)
        ModelDriver(name, load_model(name), bootstrap, config, conf, Commands(sys.stdin)).run()
    else:
        raise ConfigError("client", name, f"allowed: {', '.join(NAMES)}")


def configuration(name: str, client_id: str, group: str, conf: Mapping[str, Any]) -> c.ModelConfig:
    """Return a model's configuration from a driver's options.

    The configuration's `extra` contains the options that are not fields of `ModelConfig`.

    Raises ConfigError for an option that the model does not have.
    """
    common_options = {field.name for field in fields(c.ModelConfig)} - {
        "client_id",
        "group_id",
        "random",
        "extra",
    }
    values = {key: value for key, value in conf.items() if key in common_options and value is not None}
    if isinstance(values.get("assignors"), list):
        values["assignors"] = tuple(values["assignors"])
    # The default fetch wait is 100 ms, as in the drivers of the original clients.
    values["fetch_wait_ms"] = conf.get("wait_ms", 100)
    extra = {
        key: value for key, value in conf.items() if key not in common_options and key not in DRIVERS_OWN
    }
    for key, value in extra.items():
        if similar := get_close_matches(key, sorted(common_options | DRIVERS_OWN), 1, 0.8):
            raise ConfigError(key, value, f"did you mean {similar[0]}?")
        if key not in WORDS.get(name, {key}):
            allowed = ", ".join(sorted(common_options | DRIVERS_OWN | WORDS[name]))
            raise ConfigError(key, value, f"options of {name}: {allowed}")
    return c.ModelConfig(client_id=client_id, group_id=group, random=Random().random, extra=extra, **values)


_SARAMA_OPTIONS = {
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
    "Release",
    "Offsets.Retry.Max",
    "Once",
    "Version",
}

# Maps a model to the names of its own options. `extra` holds the values of these options.
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
    "sarama": _SARAMA_OPTIONS,
    "sarama-cluster": _SARAMA_OPTIONS
    | {"Blacklist", "PartitionStrategy", "Return.Notifications", "Whitelist"},
}


def handles_connection_loss(module: Model) -> bool:
    """Return whether the model handles the event `ConnectionLost`, as its module declares."""
    return getattr(module, "HEARS_DISCONNECTS", False) is True


class ModelDriver:
    """Drives a model. Commands run on the model's thread, as in the application of an original client."""

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
        self.connections = ModelConnections(config.client_id, Sockets())
        commands.wake = self.connections.wake
        self.polling = False
        self.owned: set[TopicPartition] = set()
        self.polled: c.FinishPoll | None = None
        self.committed: dict[object, tuple[str, str] | None] = {}
        self.awaited_commits: set[object] = set()
        self.callbacks: deque[c.RunCallback] = deque()
        self.is_in_callback = False
        self.closed = False

    def run(self) -> None:
        print_line("ready")
        try:
            self._connect()
        except ConnectionFailed:
            print_line("closed")
            self.connections.close()
            raise
        while not self.closed:
            line = self.commands.next()
            if line is not None:
                try:
                    self._execute(line)
                except (ConfigError, ValueError, IndexError, OverflowError, re.error) as error:
                    print_line("error", type(error).__name__, error)
                else:
                    if not self.closed:
                        print_line("done", line)
            elif self.polling:
                self._poll()
            else:
                self._run_until(lambda: self.commands.waiting)
        print_line("closed")
        self.connections.close()

    def _connect(self) -> None:
        """Request the API versions from one bootstrap broker after another, until one responds.

        Commands wait until a broker responds. Raises ConnectionFailed if no broker responds and no commands
        are left.
        """
        started, is_reported = Sockets.now(), False
        for host, port in cycle(self.bootstrap):
            self.connections.request_api_versions(host, port)
            end = Sockets.now() + CONNECT_MS
            while self.connections.offered is None and Sockets.now() < end:
                self.connections.wait((end - Sockets.now()) / 1000)
            if self.connections.offered is not None:
                self._step(c.Started(tuple(self.bootstrap), self.connections.offered))
                return
            if Sockets.now() <= started + REPORT_NO_BROKER_MS:
                continue
            reasons = {
                address_text(host, port): self.connections.last_errors.get(
                    c.Address(host, port, BOOTSTRAP), "no answer"
                )
                for host, port in self.bootstrap
            }
            error = ConnectionFailed.everywhere(reasons)
            if not is_reported:
                print_line("error", type(error).__name__, error)
                is_reported = True
            if self.commands.ended:
                raise error

    # ---- the model

    def _step(self, event: c.ModelEvent) -> None:
        for action in self.module.step(self.state, event, Sockets.now()):
            self._perform(action)

    def _perform(self, action: c.ModelAction) -> None:
        match action:
            case c.SendRequest():
                self.connections.send(action)
            case c.CloseConnection():
                self.connections.close_connection(action)
            case c.FinishPoll():
                self.polled = action
            case c.RunCallback():
                self.callbacks.append(action)
            case c.FinishCommit(token=token, error=error):
                self.committed[token] = error
                if token not in self.awaited_commits:
                    print_line("commit", *(error or ("ok",)))
            case c.Notify(kind=kind, name=name, text=text):
                if kind == "log":
                    print(f"{time.time():.6f}", name, text, file=sys.stderr, flush=True)
                elif kind == "notification":
                    print_line(kind, name, text)
                elif kind == "returned":
                    print_line("consume returned")
                else:
                    print_line("error", name, text)
            case c.FinishClose():
                self.closed = True

    def _run_until(self, done: Callable[[], bool], end: int | None = None) -> None:
        """Run the model and its callbacks until `done` returns true, or until the time `end`.

        During a callback, further callbacks wait.
        """
        while not done():
            now = Sockets.now()
            due = self.module.next_deadline(self.state)
            if self.callbacks and not self.is_in_callback:
                self._run_callback(self.callbacks.popleft())
            elif due is not None and due <= now:
                self._step(c.DeadlineReached())
            elif end is not None and end <= now:
                return
            else:
                wake_at = min((at for at in (due, end) if at is not None), default=None)
                wait_s = None if wake_at is None else (wake_at - now) / 1000
                for event in self.connections.wait(wait_s):
                    if not isinstance(event, c.ConnectionLost) or handles_connection_loss(self.module):
                        self._step(event)

    def _sleep(self, ms: int) -> None:
        self._run_until(lambda: False, Sockets.now() + ms)

    # ---- the application

    def _run_callback(self, callback: c.RunCallback) -> None:
        """Run the application's callback. A callback for revoked partitions may commit and sleep."""
        self.is_in_callback = True
        print_line(callback.kind, format_partitions(callback.partitions))
        if callback.kind == "assigned":
            self.owned |= set(callback.partitions)
        elif callback.kind in ("revoked", "lost"):
            self.owned -= set(callback.partitions)
            if callback.kind == "revoked":
                if self.conf.get("commit_in_revoke"):
                    self._commit()
                if self.conf.get("revoke_ms"):
                    self._sleep(self.conf["revoke_ms"])
        self.is_in_callback = False
        if callback.wait:
            self._step(c.CallbackReturned())

    def _commit(self) -> None:
        """Commit, run the model until the commit has finished, and print the result."""
        token = object()
        self.awaited_commits.add(token)
        self._step(c.CommitCalled(token))
        self._run_until(lambda: token in self.committed)
        print_line("commit", *(self.committed[token] or ("ok",)))

    def _poll(self) -> None:
        """Poll once, and print the records. After an error, print it and wait."""
        self.polled = None
        self._step(c.PollCalled(POLL_MS))
        self._run_until(lambda: self.polled is not None or self.closed)
        polled: c.FinishPoll | None = self.polled
        if polled is None:
            return
        if polled.records:
            prefix = f"{time.time():.6f} R "
            print(
                "\n".join(
                    f"{prefix}{record.partition.topic}:{record.partition.partition} {record.offset}"
                    for record in polled.records
                ),
                flush=True,
            )
        if polled.error is not None:
            print_line("error", *polled.error)
            self._sleep(AFTER_ERROR_MS)

    def _execute(self, line: str) -> None:
        command, *arguments = line.split()
        match command:
            case "subscribe":
                self._step(c.SubscribeCalled(tuple(arguments)))
                self.polling = not self.conf.get("manual_poll")
            case "pattern":
                self._step(c.SubscribeCalled(pattern=arguments[0]))
                self.polling = not self.conf.get("manual_poll")
            case "unsubscribe":
                self._unsubscribe()
            case "assign":
                self._step(c.AssignCalled(dict(parse_partition(argument) for argument in arguments)))
                self.polling = not self.conf.get("manual_poll")
            case "seek":
                topic_partition, offset = parse_partition(arguments[0])
                if offset is None:
                    raise ConfigError("command", line, "seek T:P:OFFSET")
                self._step(c.SeekCalled(topic_partition, offset))
            case "poll":
                self.polling = arguments[0] == "on"
            case "sleep":
                self._sleep(int(arguments[0]))
                print_line("slept")
            case "commit":
                self._commit()
            case "commit-async":
                self._step(c.CommitCalled(object(), wait=False))
            case "rebalance":
                self._step(c.RebalanceCalled(" ".join(arguments)))
            case "assignment":
                print_line("assignment", format_partitions(self.owned))
            case "pause":
                self._step(c.PauseCalled(tuple(sorted(self.owned))))
            case "resume":
                self._step(c.ResumeCalled(tuple(sorted(self.owned))))
            case "close":
                self._step(c.CloseCalled(stay="stay" in arguments))
                self._run_until(lambda: self.closed and not self.callbacks)
            case _:
                raise ConfigError(
                    "command", line, "a command; the docstring of kproto/testing/driver.py lists them"
                )

    def _unsubscribe(self) -> None:
        self._step(c.UnsubscribeCalled())
        end = Sockets.now() + POLL_AFTER_UNSUBSCRIBE_MS.get(self.name, 0)
        while Sockets.now() < end:
            self._poll()
        self._run_until(lambda: not self.callbacks)
        self.polling = False
        print_line("unsubscribed")
