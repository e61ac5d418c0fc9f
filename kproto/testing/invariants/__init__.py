"""What must hold in every world, whatever happens in it: functions named by what they claim.

    world.watch(*ALWAYS)      # after whatever an application sees
    ... world.run(...) ...
    check(world)              # what can only be said of the whole story, when it has come to rest

Each takes a `World` and raises `Broken`, which says who, when and what. They look at kproto's consumers;
members of other kinds count where what they do touches these (two owners), and only as far as their own
rules go.

What must hold of a part by itself (an assignor, a decoder, a reader of batches) is in `properties`. The
numbers I1 to I20 are those of the bugs of other clients from which these claims were learnt.

What holds at every moment is in `moment`, of a story in `story`, at rest in `rest`, of one rebalance or
commit in `change`.
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
from .claim import GRACE_MS, Broken, Claim, raised
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
from .single_change import (
    a_commit_blocks_no_fetch,
    a_cooperative_rebalance_moves_no_more_than_it_must,
    a_cooperative_rebalance_takes_two_rounds,
)

__all__ = [
    "ALWAYS",
    "AT_REST",
    "GRACE_MS",
    "OF_THE_STORY",
    "Broken",
    "Claim",
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

# For `World.watch`: they look at this moment.
ALWAYS: Final[tuple[Claim, ...]] = (no_partition_has_two_owners, a_fenced_member_is_silent)

# They look at all that was seen, at any time.
OF_THE_STORY: Final[tuple[Claim, ...]] = (
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

# They hold when a world has come to rest: see `kproto.testing.schedules.rest`.
AT_REST: Final[tuple[Claim, ...]] = (
    what_is_owned_is_read,
    every_record_was_delivered,
    the_group_converges,
    what_was_assigned_is_owned,
)


def check(world: World, *claims: Claim) -> None:
    """Look at these claims, or at all that can be made of a world that has come to rest (`rest`).

    Raises `Broken`, which also says what each client raised last: that may be why.
    """
    try:
        for claim in claims or (*ALWAYS, *OF_THE_STORY, *AT_REST):
            check_invariant(claim, world)
    except Broken as found:
        told = raised(world)
        if told:
            raise Broken(f"{found}; {told}") from found
        raise
