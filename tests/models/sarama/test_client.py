"""sarama's Client tries its bootstrap addresses in random order, and Close closes every used connection."""

from __future__ import annotations

from kproto.models import contract as c
from kproto.models import sarama
from tests.models.sarama.stage import stage_with_member


def test_bootstrap_addresses_are_used_in_a_random_order() -> None:
    for chance, hosts in ((0.0, ["one", "two", "three"]), (0.99, ["three", "two", "one"])):
        state = sarama.start(c.ModelConfig(client_id="a", group_id="g", random=lambda: chance))  # noqa: B023
        sarama.step(state, c.Started((("one", 1), ("two", 2), ("three", 3)), {}), 0)
        assert [seed.address.host for seed in state.metadata.seeds] == hosts


def test_without_a_refresh_frequency_no_updater_runs() -> None:
    _, a = stage_with_member(metadata_ms=0)
    assert a.state.updater is None
    _, b = stage_with_member(metadata_ms=1_000)
    assert b.state.updater is not None


def test_close_closes_every_connection_that_was_used() -> None:
    stage, a = stage_with_member()
    closed: list[c.Address] = []
    used = {broker.address for broker in a.state.metadata.brokers.values() if broker.opened and broker.used}
    finish = a.state.close
    a.state.close = lambda: (finish(), closed.extend(_closed_connections(a.state.out)))
    a.run_command("close")
    assert stage.run(2_000, until=lambda: a.closed)
    assert used
    assert used <= set(closed)


def _closed_connections(actions: list[c.ModelAction]) -> list[c.Address]:
    return [action.address for action in actions if isinstance(action, c.CloseConnection)]
