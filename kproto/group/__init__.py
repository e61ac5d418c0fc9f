"""Group membership without I/O.

Each group protocol is a state machine without I/O and without a clock. Its arguments include the time, and
its results are the actions to perform.

    protocol      the interfaces of a member and of a coordinator, which all group protocols share
    members       the protocols that a client can choose
    classic       the classic protocol (JoinGroup, SyncGroup): `coordinator` and `member`
    subscription  the encoding of subscriptions and assignments
    assignors     how a leader assigns partitions: pure functions

docs/rules lists the numbered rules, such as R64 and M95. The docstring of a module lists the rules that it
implements.
"""
