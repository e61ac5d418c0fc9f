"""The group protocols of the client, by the values of `group.protocol`. No other module chooses one."""

from __future__ import annotations

from ..errors import ConfigError
from .classic.member.member import create_classic_member
from .protocol import ClientMember, MemberConfig, MemberFactory

DEFAULT_PROTOCOL = "classic"
MEMBERS: dict[str, MemberFactory] = {
    "classic": create_classic_member,
}


def create_member(group_protocol: str, config: MemberConfig) -> ClientMember:
    """Return a new member of `group_protocol`. Raise ConfigError if the protocol is unknown."""
    factory = MEMBERS.get(group_protocol)
    if factory is None:
        raise ConfigError("group.protocol", group_protocol, f"one of {', '.join(MEMBERS)}")
    return factory(config)
