"""Values of topic configs, and which of them a real Kafka 4.3 takes: it is asked, too."""

from __future__ import annotations

TAKEN = (
    ("retention.ms", " 5 "),
    ("retention.ms", "+5"),
    ("retention.ms", "-1"),
    ("retention.ms", "\u0663"),  # a digit of another script
    ("retention.ms", "9223372036854775807"),
    ("retention.bytes", "-5"),
    ("max.message.bytes", "2147483647"),
    ("message.timestamp.type", " LogAppendTime"),
    ("compression.type", " gzip"),
    ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "17"),
    ("compression.zstd.level", "-131072"),
    ("preallocate", " TRUE "),
    ("cleanup.policy", ""),
    ("cleanup.policy", " "),
    ("cleanup.policy", "compact , delete"),
    ("cleanup.policy", "delete,delete"),
    ("min.cleanable.dirty.ratio", "5e-1"),
    ("min.cleanable.dirty.ratio", "1."),
    ("min.cleanable.dirty.ratio", "-0"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "1:1,2:1"),
)

REFUSED = (
    ("no.such.config", "1"),
    ("retention.ms", ""),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", "--5"),
    ("retention.ms", "\u00b2"),  # superscript two: Python takes it for a digit, and for no number
    ("retention.ms", "1_000"),
    ("retention.ms", "9" * 5000),
    ("retention.ms", "9223372036854775808"),
    ("max.message.bytes", "2147483648"),
    ("min.insync.replicas", "99999999999"),
    ("segment.bytes", "1000"),
    ("message.timestamp.type", "logappendtime"),
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "23"),
    ("preallocate", "yes"),
    ("cleanup.policy", "shred"),
    ("cleanup.policy", "delete,"),
    ("cleanup.policy", ","),
    ("cleanup.policy", "Delete"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("min.cleanable.dirty.ratio", "half"),
    ("leader.replication.throttled.replicas", "x"),
    ("remote.storage.enable", "true"),
)
