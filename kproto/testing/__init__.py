"""For people who test with kproto: what tests need, as a product of its own. Import the modules you use.

    kproto.testing.plugin        pytest's fixtures; `kafka` and `secured` are what they give to a test
    kproto.testing.faults        a proxy that cuts, delays and stalls connections
    kproto.testing.certificates  an authority, a server's and a client's certificates; `issuer` signs tokens
    kproto.testing.brokers       a real Kafka: in Docker, from Maven's jars, or one that runs already
    kproto.testing.world         a cluster and its clients in virtual time
    kproto.testing.schedules     random stories of a world; `invariants` are what has to hold in them
    kproto.testing.groups        a group of your consumers, as a Hypothesis state machine
    kproto.testing.strategies    Hypothesis strategies for messages and batches
    kproto.testing.properties    what has to hold of one assignor, decoder or reader of batches

Strategies, `groups` and certificates need the extra `testing`.
"""
