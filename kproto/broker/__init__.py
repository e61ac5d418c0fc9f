"""An embedded Kafka broker: one node, in memory, real sockets.

For tests and trials without Java or Docker. `kproto.broker.server` has `Server` and `running`;
`kproto.broker.machine` is what is behind them, and can be stepped in virtual time without any socket. The
group coordinator is `kproto.group.classic.coordinator` itself, the transaction coordinator
`kproto.transactions`.

Served, with all versions of Kafka 4.3: ApiVersions, Metadata, FindCoordinator, Produce, Fetch with
sessions, ListOffsets, OffsetForLeaderEpoch, InitProducerId, CreateTopics, DeleteTopics, CreatePartitions,
DeleteRecords, DescribeConfigs, IncrementalAlterConfigs and AlterConfigs (topics, brokers),
DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, ElectLeaders, ListPartitionReassignments,
SaslHandshake and SaslAuthenticate, users' SCRAM credentials, ACLs (with authorizer.class.name set); all
requests of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch,
OffsetDelete, DescribeGroups, ListGroups, DeleteGroups; and of transactions, in both versions
(transaction.version 2, KIP-890): AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit,
DescribeTransactions, ListTransactions, DescribeProducers.

What it doesn't do, and so doesn't advertise in ApiVersions:
  * the consumer protocol of KIP-848, share groups and streams groups: clients use classic groups;
  * Kerberos, quotas, delegation tokens; a second node, replicas; only `elect_leader` changes who leads.

Where it is simpler than Kafka, on purpose:
  * records live in memory only, until retention, compaction or DeleteRecords takes them. Of topic configs
    those act that are in `TopicConfig.acts`, and DescribeConfigs with documentation says of each
    whether it does; the others are accepted and shown. A topic that doesn't say `retention.ms` keeps its
    records, which Kafka deletes after a week;
  * what is set on brokers while they run is refused unless it takes effect (`Setting.dynamic`), where
    Kafka takes any name;
  * the markers of a transaction are in the logs when EndTxn is answered, where Kafka writes them a little
    later, and a transaction is aborted when its time is over, where Kafka looks every ten seconds;
  * a topic that Metadata creates is there in the same answer, not in the one after;
  * there is no __consumer_offsets and no __transaction_state topic to read;
  * the inside of produced batches is stored as it came once its CRC is right: a record that is not well
    formed under a right CRC reaches the consumer, where Kafka would answer INVALID_RECORD;
  * its log directory is called `memory`, and how much room is there nobody knows;
  * batches are sent whole, where Kafka cuts the last one at the byte limit.
"""

from __future__ import annotations
