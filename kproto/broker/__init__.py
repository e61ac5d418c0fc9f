"""An embedded Kafka broker: one node, in memory, on real sockets.

The broker is for tests and experiments without Java or Docker. `Server` and `running` in
`kproto.broker.server` start a broker. They run `kproto.broker.machine`, a state machine without I/O, which
tests can also step in virtual time. `kproto.group.classic.coordinator` coordinates groups, and
`kproto.transactions` coordinates transactions.

The broker serves the APIs in `kproto.broker.apis.table`, in all versions that Kafka 4.3 serves. The APIs
cover topics, records, classic groups, transactions (with and without KIP-890), configs, ACLs, SASL and SCRAM
credentials.

The following parts of Kafka are not implemented, and not advertised in ApiVersions:

* The consumer protocol of KIP-848, share groups and streams groups are missing. Consumers must use the
  classic protocol.
* Kerberos is missing.
* Replication to a second node is missing, so the broker never elects a leader by itself. A new leader epoch
  starts only with `Server.elect_leader`, `Server.truncate` or an ElectLeaders request.

The broker deliberately differs from Kafka in these points:

* Records are kept in memory until retention, compaction or DeleteRecords removes them.
* Only the topic configs whose `TopicConfig.acts` is true have an effect. Other topic configs are accepted,
  stored and described. The documentation in a DescribeConfigs response says whether a config has an effect. A
  topic without `retention.ms` keeps its records, whereas Kafka deletes them after a week.
* A broker config can be changed dynamically only if this broker can apply it without a restart
  (`Setting.dynamic`). Dynamic configs with unknown names are rejected, whereas Kafka accepts them.
* The markers of a transaction are written before EndTxn is answered, whereas Kafka writes them later. A
  transaction is aborted as soon as its timeout has passed, whereas Kafka looks for expired transactions every
  ten seconds.
* The response to a Metadata request that auto-creates a topic describes this topic. In Kafka, only the
  response to a later request does.
* The topics __consumer_offsets and __transaction_state cannot be read.
* A produced batch with a correct CRC is stored as it is. A malformed record in such a batch reaches the
  consumer, whereas Kafka answers the producer with INVALID_RECORD.
* Quotas of clients are stored and described, but have no effect: `Server.throttle` throttles clients.
* A reassignment of partitions is complete before the response is sent, because all nodes share the logs.
* DescribeQuorum reports offsets of 0, because the broker has no metadata log. The only feature that
  UpdateFeatures can change is transaction.version.
* DescribeLogDirs reports a single log directory, called `memory`, whose free space is unknown.
* A Fetch response contains whole batches, whereas Kafka truncates the last one at the byte limit.
"""

from __future__ import annotations
