"""Admin operations as plans: generators that yield requests and receive the responses.

A plan yields a list of `Ask`, which are sent together. It then receives the list of ended calls in the same
order, each with a response or an error. To wait for a while a plan yields a `Rest`, with the reason as its
text. A plan returns its result, or raises an error for the caller. `runner.py` runs plans.

Rules:

* A plan retries retriable errors without a limit, with growing pauses. The runner ends the plan at its
  deadline, with an error that says what the plan was last waiting for.
* The table of error codes (`error_actions.py`) says which errors are retriable.
* Wrong leaders and lost connections lead to fresh metadata. A topic that is still unknown after `PATIENCE`
  further Metadata responses raises UnknownTopic; it may have been created a moment ago.
* Unknown offsets, epochs and timestamps are None.
"""
