"""Each address has its own backoff and timeout, which grow after failures and are reset by successes."""

from __future__ import annotations

from random import Random

from consumer.engine.network.nodes import NodeStates
from consumer.engine.timeouts import Backoff

FIRST, SECOND = ("a", 1), ("b", 1)


def node_states() -> NodeStates:
    return NodeStates(Backoff(50, 150, Random(1)))


def test_the_backoff_of_a_failed_address_doubles_with_jitter() -> None:
    nodes = node_states()
    for expected in (50, 100, 150, 150):
        nodes.back_off(FIRST, 1000, "connection refused")
        assert expected * 0.8 - 1 <= nodes.retry_at(FIRST) - 1000 <= min(150, expected * 1.2)


def test_a_ready_connection_resets_the_backoff() -> None:
    nodes = node_states()
    for _ in range(3):
        nodes.back_off(FIRST, 1000, "connection refused")
    nodes.on_ready(FIRST, 5)
    assert nodes.retry_at(FIRST) == 0
    nodes.back_off(FIRST, 1000, "connection refused")
    assert nodes.retry_at(FIRST) <= 1060


def test_the_last_failure_is_known_until_a_connection_is_ready() -> None:
    nodes = node_states()
    assert nodes.last_failure(FIRST) == ""
    nodes.back_off(FIRST, 1000, "connection refused")
    nodes.back_off(FIRST, 2000, "connection reset")
    assert (nodes.last_failure(FIRST), nodes.last_failure(SECOND)) == ("connection reset", "")
    nodes.on_ready(FIRST, 5)
    assert nodes.last_failure(FIRST) == ""


def test_addresses_back_off_independently() -> None:
    nodes = node_states()
    nodes.back_off(FIRST, 1000, "connection refused")
    assert nodes.retry_at(SECOND) == 0


def test_each_timeout_doubles_the_next_one_up_to_the_maximum() -> None:
    nodes = node_states()
    waits = [nodes.timeout_ms(FIRST, 3, 100, 700)]
    for _ in range(4):
        nodes.count_timeout(FIRST, 3)
        waits.append(nodes.timeout_ms(FIRST, 3, 100, 700))
    assert waits == [100, 200, 400, 700, 700]


def test_a_response_resets_the_timeout() -> None:
    nodes = node_states()
    assert not nodes.count_timeout(FIRST, 3)
    assert nodes.count_timeout(FIRST, 3)
    nodes.clear_timeouts(FIRST, 3)
    assert nodes.timeout_ms(FIRST, 3, 100, 700) == 100
    assert not nodes.count_timeout(FIRST, 3)
