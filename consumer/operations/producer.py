"""What one may call of a producer, written once for threads and for asyncio, but for `send`: that is called
some hundred thousand times a second, so each shell has its own.

    with Producer("localhost:9092", transactional_id="billing-1") as producer:
        with producer.transaction():
            producer.send("bills", b"...")
            producer.send_offsets(consumer.group_metadata(), {partition: offset})

Leaving the inner block commits; an exception in it aborts. In asyncio both are `async with`, and what waits
is awaited. The machine of transactions is `engine.transactions`.

Who stops waiting (a timeout, Ctrl-C, a task that is cancelled) stops nothing: what was begun goes on, and the
same call again tells how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from kproto.errors import IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ..calls import call, waits
from ..clock import now, wall
from ..delivery import PieceDelivery
from ..engine.producer.transaction_states import CALLS, PendingCall, TransactionState
from ..engine.producer.transactions import TransactionManager
from ..engine.requests import Offset, triples
from ..errors import again
from ..logs import log
from ..records import GroupMetadata
from .producer_base import Sender, unsettled

T = TypeVar("T")

CLOSED = "this producer is closed; make a new one"
# How long kill waits for callbacks.
_KILL_MS = 5_000


class ProducerCalls(Sender):
    """The methods of `Producer` and `AsyncProducer`."""

    # ---- how to wait: each kind of shell has its own

    def _turn(self) -> None:
        """The engine has to see at once what the application did; it is locked."""
        raise NotImplementedError

    def _shut_down(self, deadline: int) -> None:
        """Ends everything, at once; callbacks that were put have until `deadline`. Then `_is_over`."""
        raise NotImplementedError

    def _called_back(self, deadline: int) -> None:
        """Waits until what was put has been called, at most until that moment; in a callback not at all."""

    # ---- sending

    # From when until when (seconds since 1970) the clock shows which ms: hundreds of records share one.
    _moment = 0.0, 0.0, 0

    def _next_moment(self) -> int:
        """Looks at the clock, which may have been set back, too."""
        ms = wall()
        self._moment = ms / 1000, (ms + 1) / 1000, ms
        return ms

    @waits
    async def send_columns(self, topic: str, batch: Any) -> list[PieceDelivery]:
        """Queues the rows of an Arrow RecordBatch or Table, or of a dict of columns, without a Python object
        for each. The columns are value, and if there are such key, headers, timestamp (ms) and partition.

        A row goes where `send` would send it, rows of one partition keep their order. Returns one delivery
        for each batch that was made. Raises as `send`, and MissingExtra without numpy and pyarrow.
        """
        from ..arrow_batches import pieces, sheet

        found = sheet(batch, wall())
        records = self._records
        count = await self._room(lambda: records.count(topic))
        deliveries: list[PieceDelivery] = []
        for piece in pieces(found, count, self.options):
            put = partial(records.put, topic, piece.partition, piece.batch, cast("Any", piece.timestamps))
            deliveries.append(PieceDelivery(await self._room(put), 0, piece.rows))
            await self._breathe()
        return deliveries

    async def _room(self, put: Callable[[], T | None]) -> T:
        """What `put` returns, as soon as it returns something."""
        deadline = now() + self.options.max_block_ms
        while True:
            seen = self._changes
            with self._locked():
                found = put()
                self._turn()
            if found is not None:
                return found
            if not await self._wait(seen, deadline):
                raise self._no_room()

    @waits
    async def flush(self, timeout: float | None = None) -> None:
        """Sends everything now and waits until each delivery that is open has ended.

        Raises RequestTimedOut after `timeout` seconds, and NotDelivered when records were not acknowledged
        since the last flush and nobody has looked at their deliveries.
        """
        limit = self._milliseconds(timeout)
        await self._flush(limit, now() + limit)

    async def _flush(self, limit: int, deadline: int) -> None:
        with self._locked():
            self._records.seal_all()
            pending = list(self._records.open)
            self._turn()
        while True:
            seen = self._changes
            with self._locked():
                pending = unsettled(pending)
            if not pending:
                break
            if not await self._wait(seen, deadline):
                raise self._still_open(limit, pending)
        with self._locked():
            self._tell()

    # ---- transactions

    @waits
    async def begin(self, timeout: float | None = None) -> None:
        """Begins a transaction. The first one asks for the producer's id: an older producer of the same
        transactional id is fenced, and what it left open is aborted.

        Raises RequestTimedOut after `timeout` seconds (max_block_ms), then it may be called again; Fenced,
        NotAuthorized or BrokerError for a producer that can do nothing any more; IllegalState while a
        transaction is open.
        """
        await self._do("begin", timeout)

    @waits
    async def commit(self, timeout: float | None = None) -> None:
        """Sends everything, waits until it is acknowledged, and commits.

        Raises the error of the first record that was not delivered, or of an offset: then `abort`. After
        RequestTimedOut, Ctrl-C or a cancelled task nobody knows yet: call it again. Fenced and others as
        `begin`.
        """
        await self._do("commit", timeout)

    @waits
    async def abort(self, timeout: float | None = None) -> None:
        """Ends the transaction without a trace for those who read committed records. What was not sent yet
        is dropped, and its deliveries end with IllegalState. Raises as `begin`."""
        await self._do("abort", timeout)

    @call
    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        """A group's offsets become committed with the transaction, or not at all. Returns at once, also in
        asyncio: `commit` waits for them, and raises what was wrong.

        With `consumer.group_metadata()` the group refuses who was replaced in it meanwhile; with a name it
        asks nobody.
        """
        member = cast("GroupMetadata", group)  # the door made one of a name
        with self._locked():
            self._transactions("send_offsets").send_offsets(member, triples(offsets))
            self._turn()

    @waits
    async def _begin_block(self) -> None:
        await self._do("begin", None)

    @waits
    async def _end_block(self, error: BaseException | None) -> None:
        """Commits; or aborts, after an error of the block or of the commit."""
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self._do("commit", None)
        except BaseException as failure:
            await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """`error` is what the application shall see, whatever becomes of the abort; but where it is what
        spoiled the transaction, and the abort says that the producer is over, that is what matters."""
        transactions = self._transactions("abort")
        spoiled = error is transactions.error
        if "abort" not in CALLS[transactions.state]:
            return  # it never began, is committed, or is lost
        try:
            await self._do("abort", None)
        except KprotoError as also:
            if spoiled and transactions.state is TransactionState.lost:
                raise also from error
            log.error("the transaction of %r was not aborted after %r: %s", transactions.id, error, also)

    def _transactions(self, what: str) -> TransactionManager:
        found = self._engine.transactions
        if found is None:
            raise IllegalState(f"{what}() needs a producer with the option transactional_id")
        return found

    async def _do(self, what: str, timeout: float | None) -> None:
        transactions = self._transactions(what)
        limit = self.options.max_block_ms if timeout is None else int(timeout * 1000)
        deadline = now() + limit
        with self._locked():
            wish = transactions.call(what, self._me())
            self._turn()
        await self._granted(wish, limit, deadline)

    async def _granted(self, wish: PendingCall, limit: int, deadline: int) -> None:
        """Waits until it is done; raises what went wrong with it."""
        try:
            wish.waiting.add(self._me())
            while True:
                seen = self._changes
                if wish.done:
                    break
                if not await self._wait(seen, deadline):
                    raise RequestTimedOut(f"{wish.what}()", limit, self._transactions(wish.what).excuse())
        finally:
            wish.waiting.discard(self._me())
        wish.told = True
        if wish.error is not None:
            raise again(wish.error)

    # ---- the end

    @waits
    async def close(self, timeout: float | None = None) -> None:
        """Flushes, within `timeout` seconds, and ends; a second call waits until the first has done that, and
        raises RequestTimedOut when its own time is over before. A transaction that is open is aborted, one
        that is being committed has so long for it.

        Raises what went wrong, after the producer has ended: what `commit` raises, unless somebody waits for
        that; what `flush` raises, RequestTimedOut for records that stayed behind, NotDelivered for those that
        failed. Callbacks have been called then.
        """
        limit = self._milliseconds(timeout)
        deadline = now() + limit
        mine = False  # and not somebody else's, who is at it, or did it
        failure: KprotoError | None = None
        try:
            while not mine:
                seen = self._changes
                with self._locked():
                    self._closed = True
                    if self._closer is None and not self._is_over:
                        mine = True
                        self._closer = self._me()
                        continue
                if self._closer == self._me():  # which a signal handler interrupted
                    return
                if self._is_over:
                    self._called_back(deadline)
                    return
                if not await self._wait(seen, deadline):
                    raise RequestTimedOut("close", limit, "another close() is under way, and goes on")
            failure = await self._leave_transaction(limit, deadline)
            self._records.close(CLOSED)
            await self._flush(limit, deadline)
        except KprotoError as also:
            if failure is None:
                raise
            log.error("and: %s", also)
        finally:
            if mine:
                try:
                    self._shut_down(deadline)
                finally:  # where Ctrl-C came again, the next one who closes goes on
                    self._closer = None
                    self._change()
        if failure is not None:
            raise failure

    async def _leave_transaction(self, limit: int, deadline: int) -> KprotoError | None:
        """Returns what a commit failed by, if nobody else hears of it. What isn't aborted is no loss: nobody
        reads it, and the broker aborts it when its time is over."""
        transactions = self._engine.transactions
        if transactions is None:
            return None
        with self._locked():
            last = transactions.wish
            failure = None if last is None or last.waiting else last.unheard
            wish = transactions.leave()
            self._turn()
        if wish is None:
            return failure
        heard = bool(wish.waiting)
        if wish.what == "abort" and not wish.waiting:
            log.warning("the producer is closed, and aborts the transaction of %r", transactions.id)
        try:
            await self._granted(wish, limit, deadline)
        except KprotoError as error:
            if wish.what == "commit" and not heard:
                return error
            log.error("the %s of the transaction of %r did not end: %s", wish.what, transactions.id, error)
        return failure

    def kill(self) -> None:
        """Ends at once; what is still buffered is dropped, and its deliveries end with IllegalState."""
        self._closed = True
        self._records.close(CLOSED)
        self._shut_down(now() + _KILL_MS)
