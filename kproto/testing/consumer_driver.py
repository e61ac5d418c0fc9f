"""kproto's own blocking consumer under the protocol of `driver`: the program that an application would be."""

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
from .driver import AFTER_ERROR_MS, DRIVERS_OWN, POLL_MS, Commands, partition, say, written

# The drivers' words -> the consumer's options. Any other word is an option by its own name.
OPTIONS = {**CONSUMER_OPTIONS, "max_records": "max_poll_records"}


def options(client_id: str, group: str, conf: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        OPTIONS.get(key, key): value
        for key, value in conf.items()
        if value is not None and key not in DRIVERS_OWN and key != "watch"
    }
    return {"client_id": client_id, "group_id": group, "fetch_max_wait_ms": 100, **said}


def java_name(error: KprotoError) -> str:
    """What Java calls such an exception."""
    if isinstance(error, CommitFailed):
        rebalancing = error.code == ErrorCode.REBALANCE_IN_PROGRESS
        return "RebalanceInProgressException" if rebalancing else "CommitFailedException"
    if isinstance(error, NotAuthorized):
        group = error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        return "GroupAuthorizationException" if group else "TopicAuthorizationException"
    names: dict[type[KprotoError], str] = {
        Fenced: "FencedInstanceIdException",
        NoOffsetForPartition: "NoOffsetForPartitionException",
        OffsetOutOfRange: "OffsetOutOfRangeException",
        RequestTimedOut: "TimeoutException",
        IllegalState: "IllegalStateException",
        ConfigError: "ConfigException",
    }
    if type(error) not in names and isinstance(error, BrokerError) and error.code in set(ErrorCode):
        return "".join(word.capitalize() for word in ErrorCode(error.code).name.split("_")) + "Exception"
    return names.get(type(error), type(error).__name__)


# Commands that are answered in a line `answer COMMAND WHAT`, also when they fail.
ASKS = frozenset(
    {"seek", "seek-to-beginning", "seek-to-end", "paused", "position", "committed", "begins", "ends", "times"}
)


class Driven(RebalanceListener):
    """Drives a consumer: polls 50 ms unless there is a command, as the drivers of the originals do."""

    def __init__(
        self, bootstrap: str, client_id: str, group: str, conf: Mapping[str, Any], commands: Commands
    ) -> None:
        self.conf = conf
        self.commands = commands
        self.consumer = Consumer(bootstrap, **options(client_id, group, conf))
        self.polling = False
        self.refusal = ""  # how it was told

    def run(self) -> None:
        say("ready")
        while True:
            line = self.commands.next() if self.polling else self.commands.next(60)
            try:
                if line is not None:
                    if self._obey(line):
                        return
                    say("done", line)
                elif self.polling:
                    self._poll()
            except (KprotoError, ValueError, IndexError) as error:
                if line is not None or not self._told_already(error):
                    name = java_name(error) if isinstance(error, KprotoError) else type(error).__name__
                    say("error", name, error)
                if line is None:
                    time.sleep(AFTER_ERROR_MS / 1000)

    def _told_already(self, error: Exception) -> bool:
        """Who is not let in, or reaches nobody, is told so once, and not by each poll."""
        refusal = str(error) if isinstance(error, AuthenticationFailed | ConnectionFailed) else ""
        before, self.refusal = self.refusal, refusal
        return bool(refusal) and refusal == before

    def _poll(self, ms: int = POLL_MS) -> None:
        for one in self.consumer.poll(ms / 1000):
            say("R", f"{one.topic}:{one.partition}", one.offset)

    def _commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self._told(lambda: self.consumer.commit(offsets, timeout=5))

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for position in offsets.items():
            self.consumer.seek(*position)

    def _answer(self, what: str, ask: Callable[[], object]) -> None:
        try:
            found = ask()
        except KprotoError as error:
            say("answer", what, java_name(error))
        else:
            say("answer", what, "ok" if found is None else found)

    def _some(self, words: Sequence[str]) -> list[TopicPartition]:
        return [partition(word)[0] for word in words] if words else sorted(self.consumer.assignment())

    def _ask(self, word: str, rest: Sequence[str]) -> Callable[[], object] | None:
        """What these commands ask, of which Java's names are the words; None for any other command."""
        if word not in ASKS:
            return None
        one, some = self.consumer, self._some(rest)
        offsets = {where: at for where, at in map(partition, rest) if at is not None}
        match word:
            case "seek":
                return lambda: self._seek(offsets)
            case "seek-to-beginning":
                return lambda: one.seek_to("earliest", some)
            case "seek-to-end":
                return lambda: one.seek_to("latest", some)
            case "paused":
                return lambda: written(one.paused())
            case "position":
                return lambda: one.position(some[0], timeout=3)
            case "committed":
                return lambda: _offsets(one.committed(some))
            case "begins":
                return lambda: _offsets(one.list_offsets(dict.fromkeys(some, "earliest")))
            case "ends":
                return lambda: _offsets(one.list_offsets(dict.fromkeys(some, "latest")))
            case _:
                return lambda: _offsets(one.list_offsets(offsets))

    def _told(self, work: Callable[[], object], *, waits: bool = True) -> None:
        try:
            work()
        except KprotoError as error:
            again = not waits and isinstance(error, BrokerError) and error.code in RETRIABLE
            say("commit", "RetriableCommitFailedException" if again else java_name(error), error)
        else:
            say("commit", "ok")

    def _obey(self, line: str) -> bool:
        """True when that was the end."""
        word, *rest = line.split()
        if word == "poll-once":
            self._answer(word, lambda: self._poll(int(rest[0])))
            return False
        ask = self._ask(word, rest)
        if ask is not None:
            self._answer(word, ask)
            return False
        match word:
            case "subscribe":
                self.consumer.subscribe(rest, self)
                self.polling = not self.conf.get("manual_poll")
            case "pattern":
                self.consumer.subscribe(listener=self, pattern=rest[0])
                self.polling = not self.conf.get("manual_poll")
            case "unsubscribe":
                self.consumer.unsubscribe()
                self.polling = False
                say("unsubscribed")
            case "assign":
                self.consumer.assign(dict(partition(one) for one in rest))
                self.polling = not self.conf.get("manual_poll")
            case "poll":
                self.polling = rest[0] == "on"
            case "sleep":
                time.sleep(int(rest[0]) / 1000)
                say("slept")
            case "commit":
                self._commit()
            case "commit-at":
                self._commit({where: at or 0 for where, at in map(partition, rest)})
            case "commit-async":
                future = self.consumer.commit_async()
                future.add_done_callback(lambda done: self._told(done.result, waits=False))
            case "rebalance":
                self.consumer.rejoin(" ".join(rest))
            case "assignment":
                say("assignment", written(self.consumer.assignment()))
            case "pause":
                self.consumer.pause(self._some(rest))
            case "resume":
                self.consumer.resume(self._some(rest))
            case "close":
                self.consumer.close(leave="stay" not in rest, timeout=10)
                say("closed")
                return True
            case _:
                raise ConfigError("command", line, "see the head of kproto/testing/driver.py")
        return False

    # ---- the listener

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        say("assigned", written(partitions))

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        say("lost", written(partitions))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        say("revoked", written(partitions))
        if self.conf.get("commit_in_revoke"):
            self._commit()
        if self.conf.get("revoke_ms"):
            time.sleep(self.conf["revoke_ms"] / 1000)


def _offsets(found: Mapping[TopicPartition, Any]) -> str:
    """T:P@OFFSET of what has an offset, T:P@none of what hasn't."""
    told = {where: getattr(one, "offset", None) for where, one in found.items()}
    ends = {where: "none" if at is None else at for where, at in told.items()}
    return " ".join(f"{where.topic}:{where.partition}@{at}" for where, at in sorted(ends.items()))
