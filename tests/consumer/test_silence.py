"""Who is silent where it should answer, and who is not."""

from __future__ import annotations

from consumer.engine.transport import Data
from kproto.errors import RequestTimedOut
from tests.consumer.stage import Stage, fetch, question


def test_a_slow_broker_is_waited_for_longer_each_time() -> None:
    stage = Stage()
    call = question(stage)
    for turn, patience in enumerate((5_000, 10_000)):
        stage.connect(stage.opened[turn].key)
        began = stage.now
        assert stage.network.next_deadline() == began + patience
        stage.tick(began + patience)
        stage.tick(stage.now + 1_000)
    assert not call.done
    stage.tick(30_000)
    assert isinstance(call.error, RequestTimedOut)


def test_what_may_wait_at_the_broker_is_not_asked_twice() -> None:
    stage = Stage()
    call = stage.ask()
    stage.connect(stage.opened[0].key)
    stage.tick(29_999)
    assert not call.done
    assert len(stage.opened) == 1


def test_a_question_behind_a_request_that_waits_is_not_late() -> None:
    stage = Stage()
    stage.ask()
    behind = question(stage)
    stage.connect(stage.opened[0].key)
    stage.tick(20_000)
    assert not behind.done
    assert stage.shut == []


def test_a_fetch_on_a_connection_that_stalls_fails_long_before_its_time_is_over() -> None:
    stage = Stage()
    call = fetch(stage)
    stage.connect(stage.opened[0].key)
    assert stage.network.next_deadline() == 5_500
    stage.tick(5_500)
    assert "Fetch was not answered within 5500 ms" in str(call.error)
    assert stage.shut == [stage.opened[0].key]


def test_who_sends_a_long_answer_is_not_silent() -> None:
    stage = Stage()
    call = fetch(stage)
    stage.connect(stage.opened[0].key)
    for second in range(1, 20):
        stage.tick(second * 1_000)
        stage.happened(Data(stage.opened[0].key, b""))
    assert not call.done
    stage.tick(19_000 + 5_500)
    assert call.done
