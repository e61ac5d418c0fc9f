"""Group membership without I/O.

Each group protocol is a state machine that does no I/O and has no clock: it takes the time as an argument and
returns the actions to perform.

    protocol      the interfaces of a member and of a coordinator, which all group protocols share
    members       the protocols that a client can choose
    classic       the classic protocol (JoinGroup, SyncGroup): `coordinator` and `member`
    subscription  the encoding of subscriptions and assignments
    assignors     how a leader assigns partitions: pure functions

docs/rules states the numbered rules, such as R64 and M95. A module's docstring lists the rules that the
module implements.
"""
