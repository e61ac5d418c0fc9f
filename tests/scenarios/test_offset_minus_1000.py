"""The durations and counts in the texts of lesson 000's scenarios match the runs of these scenarios."""

from __future__ import annotations

from kproto.scenarios import Parameters, find

NUMBERS = {2: "two", 3: "three", 4: "four"}


def test_the_poll_before_the_seek_lasts_as_long_as_the_sleep_of_the_document() -> None:
    """S0-4: the join takes longer than the timeout of the poll, so the poll returns without a record."""
    act = find("S0-4").run(Parameters(join_after_ms=5_000)).acts[0]
    subscribed, requested = (moment.at for moment in act.moments[:2])
    assert requested - subscribed == 100


def test_the_text_counts_the_rejected_properties() -> None:
    """S0-17: the text says how many of the properties librdkafka rejects."""
    scenario = find("S0-17")
    rejected = [name for name in scenario.run().results if "=" in name]
    assert f"the last {NUMBERS[len(rejected)]} are rejected" in scenario.then


def test_the_text_counts_the_messages_that_are_read() -> None:
    """S0-11: each run reads from the committed offset to the end of the log."""
    scenario = find("S0-11")
    [member] = scenario.run().acts[0].stage.clients.values()
    assert f"the {len(member.records)} messages" in scenario.when
