"""A driver for kproto's blocking consumer.

The driver uses the consumer as an application does. `driver` defines the protocol between driver and test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consumer import Consumer, RebalanceListener

from ..error_codes import RETRIABLE, ErrorCode
from ..errors import (
    AuthenticationFailed,
    BrokerError,
    CommitFailed,
    ConfigError,
    ConnectionFailed,
    DecodeError,
    Fenced,
    IllegalState,
    KprotoError,
    NoOffsetForPartition,
    NotAuthorized,
    OffsetOutOfRange,
    RequestTimedOut,
)
from ..group.subscription import TopicPartition
from ..models.contract import CONSUMER_OPTIONS
from .driver_protocol import (
    AFTER_ERROR_MS,
    DRIVERS_OWN,
    POLL_MS,
    Commands,
    format_partitions,
    parse_partition,
    print_line,
)

# Maps option names of the drivers to option names of the consumer. All other options have the same name in
# both.
OPTIONS = {**CONSUMER_OPTIONS, "max_records": "max_poll_records"}


def options(client_id: str, group: str, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the configuration of a driver into the options of kproto's consumer."""
    renamed = {
        OPTIONS.get(key, key): value
        for key, value in conf.items()
        if value is not None and key not in DRIVERS_OWN and key != "watch"
    }
    return {"client_id": client_id, "group_id": group, "fetch_max_wait_ms": 100, **renamed}


# Maps a request to error codes that Java's consumer does not expect in the response to it. For these codes
# Java throws a plain KafkaException, not a subclass.
UNEXPECTED = {
    "JoinGroup": (ErrorCode.ILLEGAL_GENERATION,),
    "SyncGroup": (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),
}


def java_name(error: KprotoError) -> str:
    """Return the name of Java's exception for this error."""
    if isinstance(error, CommitFailed):
        return f"{type(error).__name__}Exception"
    if isinstance(error, BrokerError) and error.code in UNEXPECTED.get(error.request, ()):
        return "KafkaException"
    if isinstance(error, NotAuthorized):
        is_group = error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        return "GroupAuthorizationException" if is_group else "TopicAuthorizationException"
    names: dict[type[KprotoError], str] = {
        Fenced: "FencedInstanceIdException",
        NoOffsetForPartition: "NoOffsetForPartitionException",
        OffsetOutOfRange: "OffsetOutOfRangeException",
        RequestTimedOut: "TimeoutException",
        IllegalState: "IllegalStateException",
        DecodeError: "SchemaException",
        ConfigError: "ConfigException",
    }
    if type(error) not in names and isinstance(error, BrokerError) and error.code in set(ErrorCode):
        return "".join(word.capitalize() for word in ErrorCode(error.code).name.split("_")) + "Exception"
    return names.get(type(error), type(error).__name__)


# The commands that print `answer COMMAND RESULT`, even when they fail.
QUERIES = frozenset(
    {"seek", "seek-to-beginning", "seek-to-end", "paused", "position", "committed", "begins", "ends", "times"}
)


class CommandDriver(RebalanceListener):
    """Drives a consumer in a loop that executes the next command, or polls for 50 ms if no command is
    pending.
    """

    def __init__(
        self, bootstrap: str, client_id: str, group: str, conf: Mapping[str, Any], commands: Commands
    ) -> None:
        self.conf = conf
        self.commands = commands
        self.consumer = Consumer(bootstrap, **options(client_id, group, conf))
        self.polling = False
        self.last_connection_error = ""  # The last login or connection error that was printed.

    def run(self) -> None:
        print_line("ready")
        while True:
            line = self.commands.next() if self.polling else self.commands.next(60)
            try:
                if line is not None:
                    if self._execute(line):
                        return
                    print_line("done", line)
                elif self.polling:
                    self._poll()
            except (KprotoError, ValueError, IndexError) as error:
                if line is not None or not self._remember_connection_error(error):
                    name = java_name(error) if isinstance(error, KprotoError) else type(error).__name__
                    print_line("error", name, error)
                if line is None:
                    time.sleep(AFTER_ERROR_MS / 1000)

    def _remember_connection_error(self, error: Exception) -> bool:
        """Remember a login or connection error; return whether the previous error was the same.

        Every poll raises the error again until its cause is removed, but it is printed only once.
        """
        text = str(error) if isinstance(error, AuthenticationFailed | ConnectionFailed) else ""
        previous, self.last_connection_error = self.last_connection_error, text
        return bool(text) and text == previous

    def _poll(self, ms: int = POLL_MS) -> None:
        for record in self.consumer.poll(ms / 1000):
            print_line("R", f"{record.topic}:{record.partition}", record.offset)

    def _commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self._print_commit_result(lambda: self.consumer.commit(offsets, timeout=5))

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for topic_partition, offset in offsets.items():
            self.consumer.seek(topic_partition, offset)

    def _print_answer(self, query: str, call: Callable[[], object]) -> None:
        try:
            result = call()
        except KprotoError as error:
            print_line("answer", query, java_name(error))
        else:
            print_line("answer", query, "ok" if result is None else result)

    def _named_partitions(self, words: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions that `words` name, or all assigned partitions if `words` is empty."""
        return [parse_partition(word)[0] for word in words] if words else sorted(self.consumer.assignment())

    def _query_function(self, word: str, arguments: Sequence[str]) -> Callable[[], object] | None:
        """Return the function that answers a command in `QUERIES`, or None for any other command."""
        if word not in QUERIES:
            return None
        consumer, partitions = self.consumer, self._named_partitions(arguments)
        offsets = {
            topic_partition: offset
            for topic_partition, offset in map(parse_partition, arguments)
            if offset is not None
        }
        match word:
            case "seek":
                return lambda: self._seek(offsets)
            case "seek-to-beginning":
                return lambda: consumer.seek_to("earliest", partitions)
            case "seek-to-end":
                return lambda: consumer.seek_to("latest", partitions)
            case "paused":
                return lambda: format_partitions(consumer.paused())
            case "position":
                return lambda: consumer.position(partitions[0], timeout=3)
            case "committed":
                return lambda: _format_offsets(consumer.committed(partitions))
            case "begins":
                return lambda: _format_offsets(consumer.list_offsets(dict.fromkeys(partitions, "earliest")))
            case "ends":
                return lambda: _format_offsets(consumer.list_offsets(dict.fromkeys(partitions, "latest")))
            case _:
                return lambda: _format_offsets(consumer.list_offsets(offsets))

    def _print_commit_result(self, commit: Callable[[], object], *, is_sync: bool = True) -> None:
        """Call `commit`, and print its result.

        Java reports a retriable error of an asynchronous commit as a RetriableCommitFailedException.
        """
        try:
            commit()
        except KprotoError as error:
            is_retriable = not is_sync and isinstance(error, BrokerError) and error.code in RETRIABLE
            print_line(
                "commit", "RetriableCommitFailedException" if is_retriable else java_name(error), error
            )
        else:
            print_line("commit", "ok")

    def _execute(self, line: str) -> bool:
        """Execute a command. Return True if it closed the consumer."""
        word, *arguments = line.split()
        if word == "poll-once":
            self._print_answer(word, lambda: self._poll(int(arguments[0])))
            return False
        query = self._query_function(word, arguments)
        if query is not None:
            self._print_answer(word, query)
            return False
        match word:
            case "subscribe":
                self.consumer.subscribe(arguments, self)
                self.polling = not self.conf.get("manual_poll")
            case "pattern":
                self.consumer.subscribe(listener=self, pattern=arguments[0])
                self.polling = not self.conf.get("manual_poll")
            case "unsubscribe":
                self.consumer.unsubscribe()
                self.polling = False
                print_line("unsubscribed")
            case "assign":
                self.consumer.assign(dict(parse_partition(argument) for argument in arguments))
                self.polling = not self.conf.get("manual_poll")
            case "poll":
                self.polling = arguments[0] == "on"
            case "sleep":
                time.sleep(int(arguments[0]) / 1000)
                print_line("slept")
            case "commit":
                self._commit()
            case "commit-at":
                self._commit(
                    {partition: offset or 0 for partition, offset in map(parse_partition, arguments)}
                )
            case "commit-async":
                future = self.consumer.commit_async()
                future.add_done_callback(lambda done: self._print_commit_result(done.result, is_sync=False))
            case "rebalance":
                self.consumer.rejoin(" ".join(arguments))
            case "assignment":
                print_line("assignment", format_partitions(self.consumer.assignment()))
            case "pause":
                self.consumer.pause(self._named_partitions(arguments))
            case "resume":
                self.consumer.resume(self._named_partitions(arguments))
            case "close":
                self.consumer.close(leave="stay" not in arguments, timeout=10)
                print_line("closed")
                return True
            case _:
                raise ConfigError(
                    "command", line, "a command; the docstring of kproto/testing/driver.py lists them"
                )
        return False

    # ---- the rebalance listener

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        print_line("assigned", format_partitions(partitions))

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        print_line("lost", format_partitions(partitions))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        print_line("revoked", format_partitions(partitions))
        if self.conf.get("commit_in_revoke"):
            self._commit()
        if self.conf.get("revoke_ms"):
            time.sleep(self.conf["revoke_ms"] / 1000)


def _format_offsets(values: Mapping[TopicPartition, Any]) -> str:
    """Return T:P@OFFSET for each partition, or T:P@none if the partition has no offset."""
    offsets = {topic_partition: getattr(value, "offset", None) for topic_partition, value in values.items()}
    shown = {
        topic_partition: "none" if offset is None else offset for topic_partition, offset in offsets.items()
    }
    return " ".join(
        f"{topic_partition.topic}:{topic_partition.partition}@{offset}"
        for topic_partition, offset in sorted(shown.items())
    )
