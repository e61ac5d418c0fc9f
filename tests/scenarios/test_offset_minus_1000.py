"""The scenarios of document 000 do what their texts say: for how long, and how many."""

from __future__ import annotations

from kproto.scenarios import Parameters, find


def test_the_poll_before_the_seek_lasts_as_long_as_the_sleep_of_the_document() -> None:
    """S0-4: the join takes longer than the poll, so the poll returns after its timeout."""
    act = find("S0-4").run(Parameters(join_after_ms=5_000)).acts[0]
    subscribed, requested = (moment.at for moment in act.moments[:2])
    assert requested - subscribed == 100
