"""What each request needs to be allowed to do, and what it hears of the rest: in front of all handlers.

Rules that hold here, as in KafkaApis and ControllerApis (R18, R85, R103, R121, R129):

* A request is cut down to what is allowed, its handler answers that, and the rest is told beside it.
* Who may not DESCRIBE something learns nothing of it: not whether it exists, and lists are silent about it.
* Where nothing is left, the handler is not asked at all, so no group hears of a stranger's member.
* Bits of authorized operations are those of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ....messages import alter_configs, incremental_alter_configs
from ....messages.describe_configs import DescribeConfigsResult
from ...broker import Broker
from ...call import Call
from ..authorization import Gated, May, Op, Rule, each_topic
from . import groups, records, replicas, topics, transactions, users


def gate(broker: Broker, call: Call) -> Gated:
    """The call as far as it is allowed, or its answer."""
    rule = _RULES.get(call.envelope.header.request_api_key)
    if rule is None or (broker.acls is None and call.injected_error is None):
        return call
    return rule(May(broker, call), call.envelope.request)


_RULES: Final[Mapping[int, Rule]] = {
    0: records.produce,
    2: each_topic(Op.DESCRIBE, records.list_offsets),
    3: topics.metadata,
    8: groups.offset_commit,
    9: groups.offset_fetch,
    10: groups.find_coordinator,
    11: groups.member,
    12: groups.member,
    13: groups.member,
    14: groups.sync_group,
    15: groups.describe_groups,
    16: groups.list_groups,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: each_topic(Op.DELETE, records.delete_records),
    22: transactions.init_producer_id,
    23: records.leader_epochs,
    24: transactions.add_partitions,
    25: transactions.add_offsets,
    26: transactions.end,
    28: transactions.offset_commit,
    29: users.on_cluster(Op.DESCRIBE, users.describe_acls),
    30: users.on_cluster(Op.ALTER, users.create_acls),
    31: users.on_cluster(Op.ALTER, users.delete_acls),
    32: topics.configs(Op.DESCRIBE_CONFIGS, partial(DescribeConfigsResult, configs=[]), "results"),
    33: topics.configs(Op.ALTER_CONFIGS, alter_configs.AlterConfigsResourceResponse, "responses"),
    35: users.on_cluster(Op.DESCRIBE, replicas.describe_log_dirs),
    37: each_topic(Op.ALTER, topics.create_partitions, answers="results", once=True),
    42: groups.delete_groups,
    43: replicas.elect_leaders,
    44: topics.configs(Op.ALTER_CONFIGS, incremental_alter_configs.AlterConfigsResourceResponse, "responses"),
    46: users.on_cluster(Op.DESCRIBE, replicas.list_partition_reassignments),
    47: groups.offset_delete,
    50: users.on_cluster(Op.DESCRIBE, users.describe_scram),
    51: users.on_cluster(Op.ALTER, users.alter_scram),
    60: topics.describe_cluster,
    61: each_topic(Op.READ, transactions.producers),
    65: transactions.describe,
    66: transactions.listed,
    75: topics.describe_topic_partitions,
}
"""By API key; Fetch (1) looks for itself, as its session remembers what is not allowed."""

CAN_FAIL: Final = frozenset({1, *_RULES})
"""What may be refused to somebody."""
