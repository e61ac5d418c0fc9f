"""Runs plans over a client's connections: the only place where a plan is asked for its next step.

    runner.start(token, plan, timeout_ms)
    runner.pump()               # after every step of the network
    ended = runner.take()       # [Done(token, value, error), ...]

Rules that hold here:

* Every plan that was started ends in exactly one `Done`: with its value, with the error that it raised, or
  with RequestTimedOut, which says what it was asking for or resting for. `drop` is the one exception: nobody
  wants to know any more.
* What a plan raises ends that plan, and nothing else, also when it is no error of ours.
* A plan goes on as soon as the last of its calls has ended; its pauses grow, by the backoff that the owner
  gives.
* What is due is kept in order: a thousand plans that wait cost nothing.
* Metadata that a plan took into the view is known to all of the client: `heard` is told of which topics.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kproto.errors import KprotoError, RequestTimedOut
from kproto.messages.metadata import MetadataResponse

from ..events import Done
from ..network.client import NetworkClient
from ..network.connection import Call
from .plan import Ask, Plan, Rest


class _Job:
    __slots__ = ("calls", "deadline", "open", "over", "plan", "rests", "timeout_ms", "token", "what", "why")

    def __init__(self, token: object, plan: Plan[Any], deadline: int, timeout_ms: int) -> None:
        self.token = token
        self.plan = plan
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.calls: list[Call] = []
        self.open = 0  # calls without an answer
        self.rests = 0  # in a row
        self.over = False
        self.what = "the cluster"
        self.why = ""


class PlanRunner:
    """The plans under way over one `Network`. `backoff` says how many ms a plan's n-th pause is, from 0."""

    def __init__(
        self, network: NetworkClient, clock: Callable[[], int], backoff: Callable[[int], int]
    ) -> None:
        self._network = network
        self._clock = clock
        self._backoff = backoff
        self.heard: Callable[[frozenset[str]], None] = lambda topics: None
        self._jobs: dict[object, _Job] = {}
        # (when, number, job): deadlines and the ends of pauses. What is over is skipped when its time comes.
        self._due: list[tuple[int, int, _Job]] = []
        self._number = 0
        # The plans that ended since `take` was called last.
        self.ended: list[Done] = []

    def start(self, token: object, plan: Plan[Any], timeout_ms: int) -> None:
        job = _Job(token, plan, self._clock() + timeout_ms, timeout_ms)
        self._jobs[token] = job
        self._at(job.deadline, job)
        self._advance(job, None)

    def drop(self, token: object) -> None:
        """Nobody waits for this plan any more."""
        job = self._jobs.pop(token, None)
        if job is not None:
            job.over = True
            job.plan.close()

    def end(self, error: KprotoError) -> None:
        """Ends all plans: the client is closed."""
        for job in list(self._jobs.values()):
            self._end(job, None, error)
            job.plan.close()

    def take(self) -> list[Done]:
        """What ended since the last time."""
        ended, self.ended = self.ended, []
        return ended

    def pump(self) -> None:
        """Goes on with plans whose pause is over, and ends those whose time is."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, _, job = heapq.heappop(self._due)
            if job.over:
                continue
            if job.deadline <= now:
                self._end(job, None, RequestTimedOut(job.what, job.timeout_ms, job.why))
                job.plan.close()
            else:
                self._advance(job, [])

    def due(self) -> int | None:
        while self._due and self._due[0][2].over:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _at(self, when: int, job: _Job) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self._number, job))

    def _advance(self, job: _Job, answers: list[Call] | None) -> None:
        try:
            while True:
                step = next(job.plan) if answers is None else job.plan.send(answers)
                if isinstance(step, Rest):
                    job.why = step.why
                    self._at(self._clock() + self._backoff(job.rests), job)
                    job.rests += 1
                    return
                if step:
                    self._ask(job, step)
                    return
                answers = []
        except StopIteration as end:
            self._end(job, end.value, None)
        except BaseException as error:  # also what tests, or sys.exit, raise: whoever asked hears of it
            self._end(job, None, error)

    def _ask(self, job: _Job, asks: list[Ask]) -> None:
        now = self._clock()
        job.open = len(asks)
        job.calls = []

        def answered(call: Call) -> None:
            self._answered(job)

        for ask in asks:
            most = self._network.request_timeout_ms if ask.timeout_ms is None else ask.timeout_ms
            call = self._network.send(
                ask.request,
                now,
                node=ask.node,
                lane=ask.lane,
                timeout_ms=most,
                max_version=ask.max_version,
                purpose=answered,
            )
            job.calls.append(call)
        job.what = job.calls[0].name

    def _answered(self, job: _Job) -> None:
        job.open -= 1
        if job.over or job.open:
            return
        failed = next((str(call.error) for call in job.calls if call.error is not None), None)
        job.why = failed or job.why
        calls, version = job.calls, self._network.view.version
        self._advance(job, calls)
        if self._network.view.version != version:
            answers = [call.response for call in calls if isinstance(call.response, MetadataResponse)]
            self.heard(frozenset(topic.name for one in answers for topic in one.topics if topic.name))

    def _end(self, job: _Job, value: Any, error: BaseException | None) -> None:
        job.over = True
        # A call knows its job: the two would keep each other, and answers of megabytes, until Python looks.
        job.calls = []
        self._jobs.pop(job.token, None)
        self.ended.append(Done(job.token, value, error))
