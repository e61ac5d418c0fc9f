"""An embedded Kafka broker: one node, in memory, on real sockets.

The broker is for tests and experiments without Java or Docker. `Server` and `running` in
`kproto.broker.server` start a broker.

The logic of the broker is `kproto.broker.machine`, a state machine without I/O. Tests can also step it in
virtual time. `kproto.group.classic.coordinator` coordinates groups, and `kproto.transactions` coordinates
transactions.

`kproto.broker.apis.table` lists the APIs that the broker serves, each in all versions that Kafka 4.4
advertises.

The following parts of Kafka are not implemented, and not advertised in ApiVersions:

* The consumer protocol of KIP-848, share groups and streams groups are missing. Consumers must use the
  classic protocol.

* Kerberos is missing.

* Replication to a second node is missing, so the broker never elects a leader by itself. A new leader epoch
  starts only with `Server.elect_leader`, `Server.truncate`, or an admin request that changes the leader.

The broker deliberately differs from Kafka in these points:

* Records are kept in memory until retention, compaction or DeleteRecords removes them.

* Only topic configs whose `TopicConfig.acts` is true have an effect, as their documentation in
  DescribeConfigs responses says. Other topic configs are accepted, stored and described.

* Records are kept without a time limit by default, whereas Kafka deletes them after a week.

* A broker config can be changed dynamically only if the broker can apply it without a restart
  (`Setting.dynamic`). Dynamic configs with unknown names are rejected, whereas Kafka accepts them.

* The markers of a transaction are written before EndTxn is answered, whereas Kafka writes them later.

* A transaction is aborted as soon as its timeout has passed. Kafka checks for expired transactions every ten
  seconds.

* The response to a Metadata request that auto-creates a topic describes this topic. Kafka's response has
  UNKNOWN_TOPIC_OR_PARTITION for the topic.

* The internal topics __consumer_offsets and __transaction_state do not exist, so clients cannot read them.

* The records of an uncompressed batch are decoded only if the topic is compacted, or if their timestamps must
  be checked one by one (`record_validation`). Otherwise a malformed record is stored and delivered to
  consumers, whereas Kafka rejects it with INVALID_RECORD.

* Client quotas are stored and described, but have no effect. `Server.throttle` throttles clients.

* A partition reassignment is complete before its response is sent, because no data has to be copied.

* DescribeQuorum reports offsets of 0, because the broker has no metadata log.

* UpdateFeatures can change only the feature transaction.version.

* DescribeLogDirs reports a single log directory, called `memory`, whose free space is unknown.

* A Fetch response contains whole batches, whereas Kafka truncates the last one at the byte limit.
"""

from __future__ import annotations
