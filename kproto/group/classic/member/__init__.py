"""A member of a classic group as a state machine.

The module `table` contains the `step` function. `state` defines the member's states and attributes. `member`
contains the class that a client uses.
"""

from __future__ import annotations

from ...protocol import (
    AdoptAssignment,
    CloseRequested,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    Fatal,
    FindCoordinator,
    Identity,
    Left,
    Lose,
    MemberAction,
    MemberConfig,
    MemberEvent,
    MetadataUpdated,
    PollEntered,
    PollLeft,
    Purpose,
    Received,
    Rejoining,
    RejoinRequested,
    Released,
    Revoke,
    Send,
    SendFailed,
    SendRefused,
    SubscriptionChanged,
    Tick,
    Unsubscribed,
    WantMetadata,
)
from .leave import (
    in_version,
)
from .member import (
    ClassicMember,
)
from .policy import (
    AS_JAVA,
    JAVA,
    KPROTO,
    Policy,
)
from .state import (
    EDGES,
    JOINS_WITHOUT_BACKOFF,
    Member,
    MemberState,
)
from .table import (
    TABLE,
    MemberEventKind,
    kind_of,
    step,
)
from .timers import (
    next_deadline,
    session_end,
)

__all__ = [
    "AS_JAVA",
    "EDGES",
    "JAVA",
    "JOINS_WITHOUT_BACKOFF",
    "KPROTO",
    "TABLE",
    "AdoptAssignment",
    "ClassicMember",
    "CloseRequested",
    "CommitAnswered",
    "CoordinatorFound",
    "CoordinatorLost",
    "Fatal",
    "FindCoordinator",
    "Identity",
    "Left",
    "Lose",
    "Member",
    "MemberAction",
    "MemberConfig",
    "MemberEvent",
    "MemberEventKind",
    "MemberState",
    "MetadataUpdated",
    "Policy",
    "PollEntered",
    "PollLeft",
    "Purpose",
    "Received",
    "RejoinRequested",
    "Rejoining",
    "Released",
    "Revoke",
    "Send",
    "SendFailed",
    "SendRefused",
    "SubscriptionChanged",
    "Tick",
    "Unsubscribed",
    "WantMetadata",
    "in_version",
    "kind_of",
    "next_deadline",
    "session_end",
    "step",
]
