"""Random groups of kproto's consumers and models: every invariant holds for kproto's consumers.

KPROTO_STORIES=10000 plays so many (tox -e soak), drawn by KPROTO_SEED. Where an original breaks a claim by
its own rules a scenario shows it: I10 (new partitions) in S1-16 and S1-20, I14 (a crash) in S1-23.
"""

from __future__ import annotations

import os

import pytest

from kproto.models.index import model_names
from kproto.testing.invariants import ALWAYS, InvariantBroken, check
from kproto.testing.schedules import play
from kproto.testing.world import Member
from tests.seeds import repeatable, seeds
from tests.testing.engine_mutants import MUTANTS

QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"
STORIES = int(os.environ.get("KPROTO_STORIES", "4" if QUICK else "30"))
BUNDLE = 2 if QUICK else 10
FIRST = 50_000  # The seeds of those in which mutants are looked for.
# Seeds that once told of a defect, in the client or in a claim.
FOUND = (1169, 1208, 1287, 1321, 2067, 2094, 2358, 2379, 2862, 3779, 55835, 56220)


@pytest.mark.parametrize("first", range(0, STORIES, BUNDLE))
def test_every_invariant_holds_in_mixed_groups(first: int) -> None:
    for seed in seeds(min(BUNDLE, STORIES - first), first):
        with repeatable(seed, "KPROTO_STORIES=1"):
            check(play(seed, watch=ALWAYS, others=model_names()))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    check(play(seed, watch=ALWAYS, others=model_names()))


def test_models_deliver_records_in_a_mixed_schedule() -> None:
    world = play(FIRST + 3, others=model_names())
    others = {client for client in world.clients.values() if isinstance(client, Member)}
    assert others
    assert any(
        observation.kind == "delivered" and world.clients[observation.source] in others
        for observation in world.observations
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["revoked_partitions_are_kept", "buffered_records_count_as_processed"])
def test_a_mutant_is_killed_in_a_mixed_group_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name][0](monkeypatch)

    def stories() -> None:
        for seed in range(FIRST, FIRST + 40):
            check(play(seed, watch=ALWAYS, others=model_names()))

    with pytest.raises(InvariantBroken):
        stories()
