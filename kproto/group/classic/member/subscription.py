"""Events from the application: a new subscription to topics or a pattern, or a requested rebalance."""

from __future__ import annotations

from ...protocol import RejoinRequested, SubscriptionChanged
from .reasons import METADATA_CHANGED
from .state import Actions, Member, S, move, request_rejoin


def on_subscribe(member: Member, event: SubscriptionChanged, now: int, out: Actions) -> None:
    """Replace the subscription (M92, M100).

    If the topics have changed, `rejoin_if_needed`, which runs after this event, makes a stable member rejoin.
    """
    is_same_pattern = event.pattern is not None and event.pattern == member.pattern
    have_matches_changed = is_same_pattern and event.topics != member.topics
    if have_matches_changed and member.is_leader and member.state is S.STABLE:
        # The subscription has changed because the metadata has changed: other topics match the pattern. As in
        # Java, the reason in JoinGroup names the metadata, not the subscription.
        request_rejoin(member, METADATA_CHANGED)
    member.topics, member.pattern = event.topics, event.pattern
    if member.state is S.IDLE:
        move(member, S.UNJOINED)


def on_request_rejoin(member: Member, event: RejoinRequested, now: int, out: Actions) -> None:
    """Rejoin because the application has requested it, with the application's reason."""
    request_rejoin(member, event.reason)
