"""Admin operations as plans: generators that yield requests and receive the responses.

A plan yields a list of `Ask`, which are sent together. It then receives the list of ended calls in the same
order, each with a response or an error. A plan that has to wait yields a `Rest`, which contains the reason. A
plan returns its result, or raises an error for the caller. `runner.py` runs plans.

Rules:

* A plan retries retriable errors without a limit, and the pauses between its attempts grow. At the plan's
  deadline the runner ends the plan with an error, which says what the plan was last waiting for.
* The table of error codes (`error_actions.py`) says which errors are retriable.
* After a response from a broker that is not the leader, and after a lost connection, the plan reads metadata
  again. A topic that is still unknown after `PATIENCE` further Metadata responses raises UnknownTopic. The
  first responses are not final, because the topic may have been created a moment ago.
* Unknown offsets, epochs and timestamps are None.
"""
