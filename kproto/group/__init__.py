"""Group membership without I/O: time is an argument, and steps return the actions to perform.

    protocol      the seam: what an engine asks of a member, and a broker of a coordinator, of any protocol
    members       the protocols that a client can choose
    classic       the classic protocol (JoinGroup, SyncGroup): `coordinator` and `member`
    subscription  the subscription and the assignment on the wire
    assignors     how a leader assigns partitions: pure functions

docs/rules states the numbered rules, such as R64 and M95. The docstring of a module lists the rules that it
keeps.
"""
