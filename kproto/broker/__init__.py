"""An embedded Kafka broker: one node, in memory, on real sockets.

It is for tests and experiments without Java or Docker. `kproto.broker.server` has `Server` and `running`.
`kproto.broker.machine` is the broker behind them: a pure machine, which can also be stepped in virtual time.
Groups are coordinated by `kproto.group.classic.coordinator`, transactions by `kproto.transactions`.

It serves all versions of Kafka 4.3 of the APIs in `kproto.broker.apis.table`: topics, records, classic
groups, transactions in both versions (transaction.version 2, KIP-890), configs, ACLs, SASL and SCRAM
credentials.

It does not implement, and does not advertise in ApiVersions:

* the consumer protocol of KIP-848, share groups and streams groups: clients use classic groups;
* Kerberos, quotas and delegation tokens;
* a second node with replication: only `Server.elect_leader` starts a new leader epoch.

It is simpler than Kafka in these points, on purpose:

* Records are in memory until retention, compaction or DeleteRecords removes them.
* Only the topic configs with `TopicConfig.acts` have an effect; the others are accepted and shown.
  DescribeConfigs with documentation says which is the case. A topic without `retention.ms` keeps its records,
  where Kafka deletes them after a week.
* A dynamic change of a broker config is rejected unless it takes effect (`Setting.dynamic`); Kafka accepts
  any name.
* The markers of a transaction are written before EndTxn is answered, where Kafka writes them later. A
  transaction is aborted when its timeout passes, where Kafka checks every ten seconds.
* A topic that Metadata auto-creates is in the same response, where Kafka has it in the next one.
* The topics __consumer_offsets and __transaction_state cannot be read.
* A produced batch with a correct CRC is stored as it is. A malformed record in it reaches the consumer, where
  Kafka answers INVALID_RECORD.
* The log directory is called `memory`, and its free space is unknown.
* Batches are sent whole, where Kafka truncates the last one at the byte limit.
"""

from __future__ import annotations
