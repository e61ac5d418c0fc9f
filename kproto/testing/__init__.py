"""Tools for tests with kproto. Import the modules that you use; the package itself imports none of them.

    kproto.testing.plugin        pytest fixtures for brokers, which the modules `kafka` and `secured` describe
    kproto.testing.faults        a proxy that cuts, delays and stalls connections
    kproto.testing.certificates  certificates of an authority, a server and a client; `issuer` signs tokens
    kproto.testing.brokers       a real Kafka: in Docker, from Maven's jars, or already running
    kproto.testing.world         a cluster and its clients in virtual time
    kproto.testing.schedules     random schedules of a world; `invariants` has checks for them
    kproto.testing.groups        a group of your consumers, as a Hypothesis state machine
    kproto.testing.strategies    Hypothesis strategies for messages and batches
    kproto.testing.properties    checks of one assignor, decoder or reader of batches
    kproto.testing.warm_up       compiles and imports in advance what would exceed Hypothesis's deadline

`strategies`, `groups` and `certificates` need the extra `testing`.
"""
