"""What goes wrong in sarama, by the names that its users see: KError(n), and Go's errors for the network."""

from __future__ import annotations

from typing import NamedTuple

from ...error_codes import ErrorCode


class Trouble(NamedTuple):
    """One error: the name of its type, its text, and the broker's code where a broker said it."""

    name: str
    text: str
    code: int | None = None


def kafka(code: int) -> Trouble:
    """A broker's error code."""
    try:
        text = ErrorCode(code).name
    except ValueError:
        text = "an error code that nobody knows"
    return Trouble(f"KError({code})", text, code)


def network(why: str, late: bool) -> Trouble:
    """A request without an answer: Go says EOF for what broke, and has a type for what timed out."""
    return Trouble("net.OpError" if late or "refused" in why else "errors.errorString", why or "EOF")


CLOSED_GROUP = Trouble("errors.errorString", "the consumer group is closed")
CANCELED = Trouble("errors.errorString", "context canceled")
NOT_CONNECTED = Trouble("errors.errorString", "the broker is not connected")
OUT_OF_BROKERS = Trouble("errors.errorString", "no broker is left to ask")
INCOMPLETE = Trouble("errors.errorString", "the answer doesn't say anything about the partition")
TIMED_OUT = Trouble("errors.errorString", "the application took no message in time")
RETRIES_EXHAUSTED = Trouble("errors.errorString", "the partition consumer has no retries left")
MESSAGE_TOO_LARGE = Trouble("errors.errorString", "a message is larger than Consumer.Fetch.Max")
REBALANCE_TIMED_OUT = Trouble("errors.errorString", "a claim did not end in Rebalance.Timeout")
CLAIM_EXITED = Trouble("errors.errorString", "a ConsumeClaim ended by itself")
HEARTBEAT_FAILED = Trouble("errors.errorString", "the heartbeats stopped")
PARTITIONS_CHANGED = Trouble("errors.errorString", "the number of partitions changed")
UNKNOWN_TOPIC = kafka(3)
OUT_OF_RANGE = kafka(1)
LEADER_NOT_AVAILABLE = kafka(5)
COORDINATOR_NOT_AVAILABLE = kafka(15)
FENCED = kafka(82)
REBALANCE_IN_PROGRESS = kafka(27)


def of_partition(error: Trouble) -> Trouble:
    """The same error as a ConsumerError; a broker's code still shows through it."""
    return error if error.code is not None else error._replace(name="sarama.ConsumerError")
