"""The base class of event handlers, and the dispatch of the events of `contract` to them.

A model derives a class from `EventHandlers`. The class has a method for each event that the original handles.
The model's `step` calls `dispatch`:

    class JavaHandlers(EventHandlers[State]):
        def on_poll(self, state: State, event: PollCalled, now: int, out: Actions) -> None: ...

For a call that the original client does not offer, the default handler reports an error to the application.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from .contract import (
    AssignCalled,
    CallbackReturned,
    CloseCalled,
    CommitCalled,
    ConnectionLost,
    DeadlineReached,
    ModelAction,
    ModelEvent,
    Notify,
    PauseCalled,
    PollCalled,
    RebalanceCalled,
    RequestFailed,
    ResponseReceived,
    ResumeCalled,
    SeekCalled,
    Started,
    StoreCalled,
    SubscribeCalled,
    UnsubscribeCalled,
    WakeupCalled,
)

StateT = TypeVar("StateT")
Actions = list[ModelAction]


class EventHandlers(ABC, Generic[StateT]):
    """The event handlers of one model. Each handler appends its actions to `out`."""

    # (name, text) of the error for a call that the original client does not have. {} in the text is replaced
    # by the call's name.
    UNSUPPORTED: ClassVar[tuple[str, str]]

    def dispatch(self, state: StateT, event: ModelEvent, now: int, out: Actions) -> None:
        """Call the handler of `event`."""
        HANDLERS[type(event)](self)(state, event, now, out)

    def report_unsupported(self, call: str, out: Actions) -> None:
        """Report to the application that the original client does not have `call`."""
        name, text = self.UNSUPPORTED
        out.append(Notify("error", name, text.format(call)))

    # -- events of the network and of time

    @abstractmethod
    def on_started(self, state: StateT, event: Started, now: int, out: Actions) -> None: ...

    @abstractmethod
    def on_response(self, state: StateT, event: ResponseReceived, now: int, out: Actions) -> None: ...

    @abstractmethod
    def on_request_failed(self, state: StateT, event: RequestFailed, now: int, out: Actions) -> None: ...

    def on_connection_lost(self, state: StateT, event: ConnectionLost, now: int, out: Actions) -> None:
        """Do nothing: most clients detect a lost connection only when they send the next request."""

    def on_deadline(self, state: StateT, event: DeadlineReached, now: int, out: Actions) -> None:
        """Do nothing: after every event, `step` performs the work that is due at `now`."""

    # -- calls of the application

    @abstractmethod
    def on_subscribe(self, state: StateT, event: SubscribeCalled, now: int, out: Actions) -> None: ...

    @abstractmethod
    def on_poll(self, state: StateT, event: PollCalled, now: int, out: Actions) -> None: ...

    @abstractmethod
    def on_commit(self, state: StateT, event: CommitCalled, now: int, out: Actions) -> None: ...

    @abstractmethod
    def on_close(self, state: StateT, event: CloseCalled, now: int, out: Actions) -> None: ...

    def on_callback_returned(self, state: StateT, event: CallbackReturned, now: int, out: Actions) -> None:
        """Do nothing: no part of the model waits for a callback."""

    def on_unsubscribe(self, state: StateT, event: UnsubscribeCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Unsubscribe", out)

    def on_assign(self, state: StateT, event: AssignCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Assign", out)

    def on_seek(self, state: StateT, event: SeekCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Seek", out)

    def on_pause(self, state: StateT, event: PauseCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Pause", out)

    def on_resume(self, state: StateT, event: ResumeCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Resume", out)

    def on_store(self, state: StateT, event: StoreCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Store", out)

    def on_rebalance(self, state: StateT, event: RebalanceCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Rebalance", out)

    def on_wakeup(self, state: StateT, event: WakeupCalled, now: int, out: Actions) -> None:
        self.report_unsupported("Wakeup", out)


Handler = Callable[[Any, Any, int, Actions], None]

HANDLERS: Final[Mapping[type[ModelEvent], Callable[[EventHandlers[Any]], Handler]]] = {
    Started: lambda model: model.on_started,
    ResponseReceived: lambda model: model.on_response,
    RequestFailed: lambda model: model.on_request_failed,
    ConnectionLost: lambda model: model.on_connection_lost,
    DeadlineReached: lambda model: model.on_deadline,
    SubscribeCalled: lambda model: model.on_subscribe,
    UnsubscribeCalled: lambda model: model.on_unsubscribe,
    AssignCalled: lambda model: model.on_assign,
    SeekCalled: lambda model: model.on_seek,
    PauseCalled: lambda model: model.on_pause,
    ResumeCalled: lambda model: model.on_resume,
    PollCalled: lambda model: model.on_poll,
    CallbackReturned: lambda model: model.on_callback_returned,
    CommitCalled: lambda model: model.on_commit,
    StoreCalled: lambda model: model.on_store,
    RebalanceCalled: lambda model: model.on_rebalance,
    CloseCalled: lambda model: model.on_close,
    WakeupCalled: lambda model: model.on_wakeup,
}
