"""Transactions of the blocking producer: what waits. The machine is `consumer.engine.transactions`.

    producer = Producer("localhost:9092", transactional_id="billing-1")
    with producer.transaction():
        producer.send("bills", b"...")
        producer.send_offsets(consumer.group_metadata(), {partition: offset})

Leaving the block commits; an exception in it aborts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ..arguments import rule_of
from ..engine import transactions as machine
from ..engine.producing import ProducerEngine
from ..engine.requests import Offset, triples
from ..engine.transaction_states import CALLS, State
from ..options import ProducerOptions
from ..records import GroupMetadata
from ..shell import log

S = State


class InTransactions:
    """The part of `Producer` that needs the option `transactional_id`; all is IllegalState without it."""

    options: ProducerOptions
    _engine: ProducerEngine
    _lock: Any
    _wait: Callable[[float | None], None]
    _may_wait: Callable[[], None]
    _wake: Callable[[], None]

    @contextmanager
    def transaction(self) -> Generator[None]:
        """A block whose records are seen all or not at all: its end commits, an exception aborts.

        Raises as `begin` and `commit` do; what the block raised is raised on.
        """
        self.begin()
        try:
            yield
            self.commit()
        except BaseException as error:
            self._abort_after(error)
            raise

    def begin(self, timeout: float | None = None) -> None:
        """Begins a transaction. The first one asks for the producer's id: an older producer of the same
        transactional id is fenced, and what it left open is aborted.

        Raises RequestTimedOut after `timeout` seconds (max_block_ms), then it may be called again; Fenced,
        NotAuthorized or BrokerError for a producer that can do nothing any more; IllegalState while a
        transaction is open.
        """
        self._do("begin", timeout)

    def commit(self, timeout: float | None = None) -> None:
        """Sends everything, waits until it is acknowledged, and commits.

        Raises the error of the first record that was not delivered, or of an offset: then `abort`. After
        RequestTimedOut nobody knows yet: call it again. Fenced and others as `begin`.
        """
        self._do("commit", timeout)

    def abort(self, timeout: float | None = None) -> None:
        """Ends the transaction without a trace for those who read committed records. What was not sent yet
        is dropped, and its deliveries end with IllegalState. Raises as `begin`."""
        self._do("abort", timeout)

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        """A group's offsets become committed with the transaction, or not at all. Returns at once: `commit`
        waits for them, and raises what was wrong.

        With `consumer.group_metadata()` the group refuses who was replaced in it meanwhile; with a name it
        asks nobody.
        """
        if isinstance(group, str) and group:
            group = GroupMetadata(group, -1, "", None)
        if not isinstance(group, GroupMetadata):
            raise ConfigError("group", group, "a group's name, or consumer.group_metadata()")
        with self._lock:
            self._machine("send_offsets").send_offsets(group, triples(offsets))
            self._wake()

    # ---- inside

    def _machine(self, what: str) -> machine.Transactions:
        found = self._engine.transactions
        if found is None:
            raise IllegalState(f"{what}() needs a producer with the option transactional_id")
        return found

    def _do(self, what: str, timeout: float | None) -> None:
        transactions = self._machine(what)
        limit = self.options.max_block_ms / 1000
        if timeout is not None:
            limit = rule_of("timeout", "float")("timeout", timeout)
        deadline = time.monotonic() + limit
        self._may_wait()
        with self._lock:
            wish = transactions.call(what)
            self._wake()
            while not wish.done:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RequestTimedOut(f"{what}()", int(limit * 1000), transactions.excuse())
                self._wait(left)
        if wish.error is not None:
            raise wish.error

    def _abort_after(self, error: BaseException) -> None:
        """`error` is what the application shall see, whatever becomes of the abort."""
        transactions = self._machine("abort")
        if "abort" not in CALLS[transactions.state]:
            return  # it never began, is committed, or is lost
        try:
            self.abort()
        except KprotoError as also:
            log.error("the transaction of %r was not aborted after %r: %s", transactions.id, error, also)

    def _leave(self, seconds: float) -> None:
        """A transaction that is open when the producer is closed is aborted."""
        transactions = self._engine.transactions
        if transactions is None or transactions.state not in (S.open, S.spoiled):
            return
        log.warning("the producer is closed, and aborts the transaction of %r", transactions.id)
        try:
            self.abort(seconds)
        except KprotoError as error:
            log.error("the transaction of %r was not aborted: %s", transactions.id, error)
