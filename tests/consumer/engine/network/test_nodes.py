"""What is known of each address."""

from __future__ import annotations

from random import Random

from consumer.engine.network.nodes import NodeStates
from consumer.engine.timing import Backoff

HERE, THERE = ("a", 1), ("b", 1)


def peers() -> NodeStates:
    return NodeStates(Backoff(50, 150, Random(1)))


def test_an_address_that_failed_is_left_alone_for_a_time_that_doubles_more_or_less() -> None:
    known = peers()
    for about in (50, 100, 150, 150):
        known.back_off(HERE, 1000, "connection refused")
        assert about * 0.8 - 1 <= known.retry_at(HERE) - 1000 <= min(150, about * 1.2)


def test_a_connection_that_is_ready_makes_up_for_every_failure() -> None:
    known = peers()
    for _ in range(3):
        known.back_off(HERE, 1000, "connection refused")
    known.on_ready(HERE, 5)
    assert known.retry_at(HERE) == 0
    known.back_off(HERE, 1000, "connection refused")
    assert known.retry_at(HERE) <= 1060


def test_why_an_address_failed_is_known_until_a_connection_is_ready_there() -> None:
    known = peers()
    assert known.last_failure(HERE) == ""
    known.back_off(HERE, 1000, "connection refused")
    known.back_off(HERE, 2000, "connection reset")
    assert (known.last_failure(HERE), known.last_failure(THERE)) == ("connection reset", "")
    known.on_ready(HERE, 5)
    assert known.last_failure(HERE) == ""


def test_addresses_fail_each_for_itself() -> None:
    known = peers()
    known.back_off(HERE, 1000, "connection refused")
    assert known.retry_at(THERE) == 0


def test_each_silence_doubles_the_patience_up_to_the_most() -> None:
    known = peers()
    waits = [known.timeout_ms(HERE, 3, 100, 700)]
    for _ in range(4):
        known.count_timeout(HERE, 3)
        waits.append(known.timeout_ms(HERE, 3, 100, 700))
    assert waits == [100, 200, 400, 700, 700]


def test_an_answer_makes_up_for_every_silence() -> None:
    known = peers()
    assert not known.count_timeout(HERE, 3)
    assert known.count_timeout(HERE, 3)
    known.clear_timeouts(HERE, 3)
    assert known.timeout_ms(HERE, 3, 100, 700) == 100
    assert not known.count_timeout(HERE, 3)
