"""Random groups of kproto's consumers and models: kproto's consumers keep every invariant.

KPROTO_STORIES=10000 runs 10,000 schedules (tox -e soak). KPROTO_SEED is the first of their seeds.

Some original clients break invariants, and so do their models: I10 when a topic gets new partitions
(scenarios S1-16 and S1-20), and I14 when a member crashes (scenario S1-23).
"""

from __future__ import annotations

import os

import pytest

from kproto.models.index import model_names
from kproto.testing.invariants import ALWAYS, InvariantBroken, check
from kproto.testing.schedules import play
from kproto.testing.world import ModelClient
from tests.seeds import repeatable, seeds
from tests.testing.engine_mutants import MUTANTS

QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"
SCHEDULES = int(os.environ.get("KPROTO_STORIES", "2" if QUICK else "30"))
BUNDLE = 2 if QUICK else 10
# The first seed of the schedules that must detect the mutants.
FIRST_MUTANT_SEED = 50_000
# Seeds whose schedules have revealed a bug in the client or in an invariant.
FAILED_SEEDS = (1169, 1208, 1287, 1321, 2067, 2094, 2358, 2379, 2862, 3779, 55835, 56220)


@pytest.mark.parametrize("first", range(0, SCHEDULES, BUNDLE))
def test_every_invariant_holds_in_mixed_groups(first: int) -> None:
    for seed in seeds(min(BUNDLE, SCHEDULES - first), first):
        with repeatable(seed, "KPROTO_STORIES=1"):
            check(play(seed, watch=ALWAYS, models=model_names()))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", FAILED_SEEDS)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    check(play(seed, watch=ALWAYS, models=model_names()))


def test_models_deliver_records_in_a_mixed_schedule() -> None:
    world = play(FIRST_MUTANT_SEED + 3, models=model_names())
    models = {client for client in world.clients.values() if isinstance(client, ModelClient)}
    assert models
    assert any(
        observation.kind == "delivered" and world.clients[observation.source] in models
        for observation in world.observations
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["revoked_partitions_are_kept", "buffered_records_count_as_processed"])
def test_a_mutant_is_killed_in_a_mixed_group_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name][0](monkeypatch)

    def play_schedules() -> None:
        for seed in range(FIRST_MUTANT_SEED, FIRST_MUTANT_SEED + 40):
            check(play(seed, watch=ALWAYS, models=model_names()))

    with pytest.raises(InvariantBroken):
        play_schedules()
