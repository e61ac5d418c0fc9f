"""Admin operations as plans: generators that yield requests and receive the responses.

A plan yields a list of requests (`Ask`), which are sent together. The runner then sends the plan one `Call`
(a response or an error) per request, in the same order.

A plan that has to wait yields a pause (`Rest`) with its reason.

A plan returns its result, or raises an error for the caller. `runner.py` runs plans.

Rules:

* After a retriable error a plan sends the request again, at increasing intervals, until its deadline.

* At the deadline the runner ends the plan with an error that names the request or the condition for which the
  plan was waiting.

* The table of error codes (`error_actions.py`) says which errors are retriable.

* A plan requests the metadata again after a lost connection, and after a broker has responded that it is not
  the leader.

* A plan also requests the metadata again if a topic is unknown, because brokers learn of a new topic with a
  delay.

* After `UNKNOWN_TOPIC_RETRIES` Metadata responses that report a topic as unknown, the plan raises
  UnknownTopic.

* Unknown offsets, epochs and timestamps are None.
"""
