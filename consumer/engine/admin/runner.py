"""Runs admin operations (the plans of this package) over a client's connections.

    runner.start(token, plan, timeout_ms)
    runner.pump()               # after every step of the network
    ended = runner.take()       # [Done(token, value, error), ...]

Rules:

* Every plan ends in exactly one `Done`, with its result or its error, unless `drop` cancels the plan.

* At its deadline a plan receives DeadlinePassed. A plan that catches it may end with a partial result
  (`fanout.py`).

* If a plan does not catch DeadlinePassed, it fails with RequestTimedOut, which names the request or the
  condition for which the plan was waiting.

* An exception in a plan ends only that plan, even if it is not a KprotoError.

* A plan continues as soon as the last of its calls has ended. `backoff` determines the lengths of its pauses.

* Deadlines and ends of pauses are kept in a heap, so that the runner visits only plans that are due.

* After a plan has updated the metadata, the runner calls `on_metadata` with the topics of the Metadata
  response.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kproto.errors import KprotoError, RequestTimedOut
from kproto.messages.metadata import MetadataResponse

from ..events import Done
from ..network.call import Call
from ..network.client import NetworkClient
from .plan import Ask, DeadlinePassed, Plan, Rest


class _Job:
    """A running plan.

    A plan may send several requests together. `calls` contains a `Call` for each of the requests that the
    plan sent together last.

    If the plan times out, the error contains `request`, the name of the first of these requests, and `why`,
    the reason why the plan waits.
    """

    __slots__ = (
        "calls",
        "deadline",
        "has_ended",
        "open_calls",
        "pauses",
        "plan",
        "request",
        "timeout_ms",
        "token",
        "why",
    )

    def __init__(self, token: object, plan: Plan[Any], deadline: int, timeout_ms: int) -> None:
        self.token = token
        self.plan = plan
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.calls: list[Call] = []
        self.open_calls = 0  # Number of calls in flight.
        self.pauses = 0  # Number of the plan's pauses so far; `backoff` requires it.
        self.has_ended = False
        self.request = "the cluster"
        self.why = ""


class PlanRunner:
    """The running plans of one client.

    `backoff(n)` returns the length (ms) of a plan's n-th pause, counted from 0.
    """

    def __init__(
        self, network: NetworkClient, clock: Callable[[], int], backoff: Callable[[int], int]
    ) -> None:
        self._network = network
        self._clock = clock
        self._backoff = backoff
        self.on_metadata: Callable[[frozenset[str]], None] = lambda topics: None
        self._jobs: dict[object, _Job] = {}
        # A heap of (deadline or end of a pause, number, job). `number` orders entries with the same time.
        # Entries of ended jobs are skipped.
        self._timers: list[tuple[int, int, _Job]] = []
        self._number = 0
        # The results of the plans that have ended since the last `take`.
        self.ended: list[Done] = []

    def start(self, token: object, plan: Plan[Any], timeout_ms: int) -> None:
        """Start a plan and send its first requests. It times out `timeout_ms` from now."""
        job = _Job(token, plan, self._clock() + timeout_ms, timeout_ms)
        self._jobs[token] = job
        self._schedule(job.deadline, job)
        self._advance(job, None)

    def drop(self, token: object) -> None:
        """Cancel the plan with this token. No `Done` follows."""
        job = self._jobs.pop(token, None)
        if job is not None:
            job.has_ended = True
            job.plan.close()

    def fail_all(self, error: KprotoError) -> None:
        """End all plans with `error`, because the client is closed."""
        for job in list(self._jobs.values()):
            self._end(job, None, error)
            job.plan.close()

    def take(self) -> list[Done]:
        """Remove and return the results of plans that have ended."""
        ended, self.ended = self.ended, []
        return ended

    def pump(self) -> None:
        """Continue plans whose pause has ended, and fail those that have timed out."""
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, job = heapq.heappop(self._timers)
            if job.has_ended:
                continue
            if job.deadline <= now:
                self._time_out(job)
            else:
                self._advance(job, [])

    def due(self) -> int | None:
        """Return the next end (ms) of a plan's pause or timeout, or None if no plan is running."""
        while self._timers and self._timers[0][2].has_ended:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _schedule(self, at: int, job: _Job) -> None:
        """Have `pump` continue the job, or time it out, at the time `at` (ms)."""
        self._number += 1
        heapq.heappush(self._timers, (at, self._number, job))

    def _advance(self, job: _Job, ended_calls: list[Call] | None) -> None:
        """Run the plan until it waits for calls or for the end of a pause, or ends.

        The plan receives `ended_calls`, which is None only when the plan starts.
        """
        try:
            while True:
                step = next(job.plan) if ended_calls is None else job.plan.send(ended_calls)
                if isinstance(step, Rest):
                    job.why = step.why
                    self._schedule(self._clock() + self._backoff(job.pauses), job)
                    job.pauses += 1
                    return
                if step:
                    self._send_requests(job, step)
                    return
                ended_calls = []  # The plan yielded no requests, so it continues at once.
        except StopIteration as end:
            self._end(job, end.value, None)
        except BaseException as error:  # The caller of the plan receives every exception, even SystemExit.
            self._end(job, None, error)

    def _send_requests(self, job: _Job, asks: list[Ask]) -> None:
        """Send the requests of a plan, which continues when all of them have ended."""
        now = self._clock()
        job.open_calls = len(asks)
        job.calls = []

        def on_response(call: Call) -> None:
            self._on_call_ended(job)

        for ask in asks:
            timeout_ms = self._network.request_timeout_ms if ask.timeout_ms is None else ask.timeout_ms
            call = self._network.send(
                ask.request,
                now,
                node=ask.node,
                lane=ask.lane,
                timeout_ms=timeout_ms,
                max_version=ask.max_version,
                purpose=on_response,
            )
            job.calls.append(call)
        job.request = job.calls[0].name

    def _on_call_ended(self, job: _Job) -> None:
        """Continue the plan if this was its last open call.

        If the plan uses the responses to update the metadata, pass their topics to `on_metadata`.
        """
        job.open_calls -= 1
        if job.has_ended or job.open_calls:
            return
        failure = next((str(call.error) for call in job.calls if call.error is not None), None)
        job.why = failure or job.why
        calls, version = job.calls, self._network.view.version
        self._advance(job, calls)
        if self._network.view.version != version:
            responses = [call.response for call in calls if isinstance(call.response, MetadataResponse)]
            self.on_metadata(
                frozenset(topic.name for response in responses for topic in response.topics if topic.name)
            )

    def _time_out(self, job: _Job) -> None:
        """End a plan whose deadline has passed. The plan may still return a partial result."""
        timeout = RequestTimedOut(job.request, job.timeout_ms, job.why)
        try:
            job.plan.throw(DeadlinePassed(timeout, job.calls if job.open_calls else []))
        except StopIteration as end:
            self._end(job, end.value, None)
        except DeadlinePassed:
            self._end(job, None, timeout)
        except BaseException as error:  # The caller of the plan receives every exception, even SystemExit.
            self._end(job, None, error)
        else:  # The plan caught DeadlinePassed and yielded another step, which is not run.
            self._end(job, None, timeout)
            job.plan.close()

    def _end(self, job: _Job, value: Any, error: BaseException | None) -> None:
        """Remove the job, and add its `Done` to `ended`."""
        job.has_ended = True
        # A call and its job refer to each other. Without this line, the reference cycle would keep large
        # responses in memory until Python's garbage collector runs.
        job.calls = []
        self._jobs.pop(job.token, None)
        self.ended.append(Done(job.token, value, error))
