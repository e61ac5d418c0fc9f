"""The programs of examples/, each with a string that its output must contain."""

from __future__ import annotations

from typing import Final

OUTPUTS: Final = {
    "group_with_handler.py": "12 messages",
    "group_with_manual_commit.py": "orders-0: ",
    "group_with_two_loops.py": "consumer quit finish",
    "reader.py": "6 messages",
    "read_message.py": "6 messages",
    "group_that_survives_growth.py": "100 of 100 read, none lost: True",
    "synchronous_producer.py": "k1: partition",
    "one_partition.py": "flight 4 of 5",
    "kafka_python_json.py": "read [{'flight': 'UA1', 'to': 'BER'}",
    "aiokafka_manual_commit.py": "stored 20 records",
    "aiokafka_transactions.py": "10 words in capitals, each exactly once",
    "confluent_delivery_callbacks.py": "3 delivered, 3 read",
    "java_offsets_in_database.py": "records, each exactly once",
    "sarama_graceful_shutdown.py": "12 messages, then closed",
    "kafka_go_explicit_commits.py": "9 payments, 0 not committed",
    "franz_go_worker_per_partition.py": "30 records, in the order of each partition",
    "kcat_tail.py": "5 lines",
    "lag_exporter.py": 'kafka_consumergroup_lag{group="slow",topic="measured",partition="0"} 3',
    "dead_letter_topic.py": "3 orders, 1 dead letter after 3 attempts",
}
