"""An embedded Kafka broker: one node, in memory, on real sockets.

The broker is for tests and experiments without Java or Docker. `Server` and `running` in
`kproto.broker.server` start a broker. They run `kproto.broker.machine`, a state machine without I/O, which
tests can also step in virtual time. `kproto.group.classic.coordinator` coordinates groups, and
`kproto.transactions` coordinates transactions.

The broker serves the APIs in `kproto.broker.apis.table`, in all versions that Kafka 4.3 serves: topics,
records, classic groups, transactions in both versions (transaction.version 2, KIP-890), configs, ACLs, SASL
and SCRAM credentials.

The following parts of Kafka are not implemented, and not advertised in ApiVersions:

* The consumer protocol of KIP-848, share groups and streams groups are missing. Clients use classic groups.
* Kerberos, quotas and delegation tokens are missing.
* Replication to a second node is missing. A new leader epoch starts only when a test calls
  `Server.elect_leader` or `Server.truncate`.

The broker deliberately differs from Kafka in these points:

* Records are kept in memory until retention, compaction or DeleteRecords removes them.
* Only the topic configs whose `TopicConfig.acts` is true have an effect. Other topic configs are accepted,
  stored and described. The documentation in a DescribeConfigs response says whether a config has an effect. A
  topic without `retention.ms` keeps its records, whereas Kafka deletes them after a week.
* A dynamic change of a broker config that this broker cannot apply without a restart is rejected
  (`Setting.dynamic`). Kafka accepts dynamic configs of any name.
* The markers of a transaction are written before EndTxn is answered, whereas Kafka writes them later. A
  transaction is aborted as soon as its timeout has passed, whereas Kafka looks for expired transactions every
  ten seconds.
* A Metadata request that auto-creates a topic receives the topic's description. In Kafka, only the response
  to a later request describes the topic.
* The topics __consumer_offsets and __transaction_state cannot be read.
* A produced batch with a correct CRC is stored as it is. A malformed record in such a batch reaches the
  consumer, whereas Kafka answers the producer with INVALID_RECORD.
* The log directory is called `memory`, and its free space is unknown.
* A Fetch response contains whole batches, whereas Kafka truncates the last one at the byte limit.
"""

from __future__ import annotations
