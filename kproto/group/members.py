"""The group protocols that a client can choose, registered under their values of `group.protocol`.

To add a protocol, register the factory of its member in `MEMBERS`. The consumer option `group_protocol` and
the property `group.protocol` then accept its name. No other module lists the protocols.

`kproto.group.coordinators` registers the embedded broker's coordinators.
"""

from __future__ import annotations

from ..validation import one_of
from .classic.member.member import create_classic_member
from .protocol import ClientMember, MemberConfig, MemberFactory

MEMBERS: dict[str, MemberFactory] = {
    "classic": create_classic_member,
}


def check_protocol(option: str, group_protocol: object) -> None:
    """Raise ConfigError if the value of `option` is not the name of a registered protocol."""
    one_of(option, group_protocol, tuple(MEMBERS))


def create_member(group_protocol: str, config: MemberConfig) -> ClientMember:
    """Return a new member for this group protocol. Raise ConfigError if the protocol is unknown."""
    check_protocol("group_protocol", group_protocol)
    return MEMBERS[group_protocol](config)
