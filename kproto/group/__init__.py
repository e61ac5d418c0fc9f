"""The classic group protocol without I/O: time is an argument, and what is to be done is returned.

    coordinator   the broker's half: `step(coordinator, event, now)`; its state is in `classic` and `offsets`
    member        the client's half, eager and cooperative
    subscription  what members say of themselves, and what leaders answer
    assignors     who gets which partitions: pure functions

Each module states its rules on top.
"""
