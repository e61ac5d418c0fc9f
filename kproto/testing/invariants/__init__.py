"""Invariants: functions that check a property of a world. The name of each function states the property.

A world is a simulated cluster with its clients (`kproto.testing.world`). It settles when all faults have
ended and all applications poll (`kproto.testing.schedules.settle`).

    world.watch(*ALWAYS)      # check after each event that an application observes
    ... world.run(...) ...
    check(world)              # check the whole run, after `settle`

Each invariant takes a `World`. It raises `InvariantBroken`, which names the client, the reason and the time.

Invariants describe kproto's consumers. A model of another client is checked only where it affects kproto's
consumers, for example if a partition has two owners.

`docs/rules/invariants.md` defines the numbers I1 to I20.

`kproto.testing.properties` contains checks for a single assignor, decoder or reader of batches, without a
world.

* `always`: invariants that hold at every moment

* `history`: invariants of the whole run so far, which can be checked at any time

* `at_rest`: invariants of a settled world

* `single_change`: invariants of one rebalance or one commit
"""

from __future__ import annotations

from typing import Final

from ..world import World
from ..world.user_code import check_invariant
from .always import a_fenced_member_is_silent, no_partition_has_two_owners
from .at_rest import (
    every_record_was_delivered,
    the_group_converges,
    what_is_owned_is_read,
    what_was_assigned_is_owned,
)
from .history import (
    a_clean_handover_loses_no_commit,
    a_commit_costs_no_partition,
    a_partition_starts_where_the_group_committed,
    close_ends_in_time,
    every_error_has_an_exit,
    every_future_ends,
    no_committed_offset_is_reset,
    nothing_is_skipped_or_repeated_while_owned,
    nothing_of_a_revoked_partition_is_delivered,
    nothing_paused_is_delivered,
    the_last_seek_wins,
    what_commit_reported_is_committed,
    what_is_committed_was_delivered,
)
from .queries import GRACE_MS, Invariant, InvariantBroken, last_errors_of
from .single_change import (
    a_commit_blocks_no_fetch,
    a_cooperative_rebalance_moves_no_more_than_it_must,
    a_cooperative_rebalance_takes_two_rounds,
)

__all__ = [
    "ALWAYS",
    "AT_REST",
    "GRACE_MS",
    "HISTORY",
    "Invariant",
    "InvariantBroken",
    "a_clean_handover_loses_no_commit",
    "a_commit_blocks_no_fetch",
    "a_commit_costs_no_partition",
    "a_cooperative_rebalance_moves_no_more_than_it_must",
    "a_cooperative_rebalance_takes_two_rounds",
    "a_fenced_member_is_silent",
    "a_partition_starts_where_the_group_committed",
    "check",
    "close_ends_in_time",
    "every_error_has_an_exit",
    "every_future_ends",
    "every_record_was_delivered",
    "no_committed_offset_is_reset",
    "no_partition_has_two_owners",
    "nothing_is_skipped_or_repeated_while_owned",
    "nothing_of_a_revoked_partition_is_delivered",
    "nothing_paused_is_delivered",
    "the_group_converges",
    "the_last_seek_wins",
    "what_commit_reported_is_committed",
    "what_is_committed_was_delivered",
    "what_is_owned_is_read",
    "what_was_assigned_is_owned",
]

# Invariants that hold at every moment of a run. `World.watch` checks them after each observation.
ALWAYS: Final[tuple[Invariant, ...]] = (no_partition_has_two_owners, a_fenced_member_is_silent)

# Invariants of the whole run so far, which can be checked at any time.
HISTORY: Final[tuple[Invariant, ...]] = (
    nothing_of_a_revoked_partition_is_delivered,
    nothing_is_skipped_or_repeated_while_owned,
    a_partition_starts_where_the_group_committed,
    the_last_seek_wins,
    nothing_paused_is_delivered,
    what_is_committed_was_delivered,
    what_commit_reported_is_committed,
    a_commit_costs_no_partition,
    no_committed_offset_is_reset,
    a_clean_handover_loses_no_commit,
    every_future_ends,
    close_ends_in_time,
    every_error_has_an_exit,
)

# Invariants of a settled world; see `kproto.testing.schedules.settle`.
AT_REST: Final[tuple[Invariant, ...]] = (
    what_is_owned_is_read,
    every_record_was_delivered,
    the_group_converges,
    what_was_assigned_is_owned,
)


def check(world: World, *invariants: Invariant) -> None:
    """Check `invariants`, by default all invariants that hold in a settled world (see `settle`).

    Raises `InvariantBroken` for the first invariant that does not hold. The message contains the last error
    of each client as a possible cause.
    """
    try:
        for invariant in invariants or (*ALWAYS, *HISTORY, *AT_REST):
            check_invariant(invariant, world)
    except InvariantBroken as error:
        last_errors = last_errors_of(world)
        if last_errors:
            raise InvariantBroken(f"{error}; {last_errors}") from error
        raise
