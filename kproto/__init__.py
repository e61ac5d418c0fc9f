"""Kafka's consumer protocol in pure Python. Import the modules you use:

    kproto.messages            every request and response; `kproto.messages.index` finds them by key or name
    kproto.messages.headers    whole frames: header and body
    kproto.wire                how a message is declared; `kproto.wire.flat`: large answers as plain tuples
    kproto.records             record batches as rows; `kproto.records.columns`: as Arrow columns
    kproto.group               both halves of the group protocol, as state machines without I/O
    kproto.broker.server       an embedded broker for any client
    kproto.testing.strategies  Hypothesis strategies for all of these messages and batches
    kproto.errors              every exception
    consumer                   the consumer and the producer

This package itself imports none of them.
"""
