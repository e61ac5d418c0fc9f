"""Programs that use other client libraries. test_foreign_clients.py runs each in a separate process.

    python foreign_clients.py CLIENT create BOOTSTRAP TOPIC PARTITIONS
    python foreign_clients.py CLIENT produce BOOTSTRAP TOPIC FIRST COUNT COMPRESSION IDEMPOTENT
    python foreign_clients.py CLIENT member BOOTSTRAP TOPIC GROUP STRATEGY SESSION_MS
    python foreign_clients.py CLIENT committed BOOTSTRAP TOPIC GROUP PARTITIONS

CLIENT is kafka-python, aiokafka or confluent. A member prints several lines of JSON. Every other program
prints one.

A member prints {"assigned": [0, 3]} when its assignment changes, and {"read": [[partition, offset, number],
...]} before it commits these offsets. Its other lines are {"commit_failed": ...} and {"closed": true}.

A member closes when it reads a line, with any content, from standard input.

A member retries a failed commit, because it may keep its partitions through a rebalance. Without a retry, the
last offsets of these partitions would stay uncommitted.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
from typing import Any

Told = dict[str, Any]


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def asked_to_close() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


class KafkaPython:
    @staticmethod
    def create(bootstrap: str, topic: str, partitions: str) -> None:
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, int(partitions), 1)])
        tell(created=sorted(admin.list_topics()))
        admin.close()

    @staticmethod
    def produce(
        bootstrap: str, topic: str, first: str, count: str, compression: str, idempotent: str
    ) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent == "yes",
            acks="all",
            retry_backoff_ms=50,
        )
        numbers = range(int(first), int(first) + int(count))
        sent = [producer.send(topic, b"%d" % n, key=b"%d" % n) for n in numbers]
        producer.flush()
        tell(produced=len([request.get(30) for request in sent]))
        producer.close()

    @staticmethod
    def member(bootstrap: str, topic: str, group: str, strategy: str, session: str) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        strategies = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=int(session),
            heartbeat_interval_ms=int(session) // 5,
            partition_assignment_strategy=[strategies[strategy]],
        )

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            def on_partitions_assigned(self, assigned: Any) -> None:
                pass

        consumer.subscribe([topic], listener=Listener())
        owned, owing = None, False
        while not asked_to_close():
            # A member without partitions polls with a long timeout, because kafka-python's leader can hang
            # after a short one. If poll times out between SyncGroup and its response, need_rejoin() is False,
            # and the leader never reads its assignment.
            got = consumer.poll(timeout_ms=100 if owned else 5000)
            if (now := sorted(tp.partition for tp in consumer.assignment())) != owned:
                owned = now
                tell(assigned=owned)
            if got:
                tell(
                    read=[[r.partition, r.offset, int(r.value)] for records in got.values() for r in records]
                )
            if owing := owing or bool(got):
                try:
                    consumer.commit()
                    owing = False
                except Exception as error:  # A commit may fail during a rebalance.
                    tell(commit_failed=repr(error))
        consumer.close()
        tell(closed=True)

    @staticmethod
    def committed(bootstrap: str, topic: str, group: str, partitions: str) -> None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        tell(committed=[consumer.committed(TopicPartition(topic, p)) for p in range(int(partitions))])
        consumer.close()


class AIOKafka:
    @staticmethod
    def create(bootstrap: str, topic: str, partitions: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([NewTopic(topic, int(partitions), 1)])
            tell(created=sorted(await admin.list_topics()))
            await admin.close()

        asyncio.run(run())

    @staticmethod
    def produce(
        bootstrap: str, topic: str, first: str, count: str, compression: str, idempotent: str
    ) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent == "yes",
                acks="all",
            )
            await producer.start()
            numbers = range(int(first), int(first) + int(count))
            sent = [await producer.send(topic, b"%d" % n, key=b"%d" % n) for n in numbers]
            await producer.flush()
            tell(produced=len(await asyncio.gather(*sent)))
            await producer.stop()

        asyncio.run(run())

    @staticmethod
    def member(bootstrap: str, topic: str, group: str, strategy: str, session: str) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        strategies = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }

        async def run() -> None:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=int(session),
                heartbeat_interval_ms=int(session) // 5,
                partition_assignment_strategy=[strategies[strategy]],
            )
            await consumer.start()
            owned, owing = None, False
            while not asked_to_close():
                got = await consumer.getmany(timeout_ms=100)
                if (now := sorted(tp.partition for tp in consumer.assignment())) != owned:
                    owned = now
                    tell(assigned=owned)
                if got:
                    tell(
                        read=[
                            [r.partition, r.offset, int(r.value)] for records in got.values() for r in records
                        ]
                    )
                if owing := owing or bool(got):
                    try:
                        await consumer.commit()
                        owing = False
                    except Exception as error:  # A commit may fail during a rebalance.
                        tell(commit_failed=repr(error))
            await consumer.stop()
            tell(closed=True)

        asyncio.run(run())

    @staticmethod
    def committed(bootstrap: str, topic: str, group: str, partitions: str) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> None:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
            await consumer.start()
            tell(
                committed=[await consumer.committed(TopicPartition(topic, p)) for p in range(int(partitions))]
            )
            await consumer.stop()

        asyncio.run(run())


class Confluent:
    @staticmethod
    def create(bootstrap: str, topic: str, partitions: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, int(partitions), 1)])[topic].result(30)
        tell(created=sorted(admin.list_topics(timeout=30).topics))

    @staticmethod
    def produce(
        bootstrap: str, topic: str, first: str, count: str, compression: str, idempotent: str
    ) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "enable.idempotence": idempotent == "yes",
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "acks": "all",
            }
        )
        stored: list[int] = []

        def delivered(error: object, message: Any) -> None:
            if error is None:
                stored.append(message.offset())

        for n in range(int(first), int(first) + int(count)):
            producer.produce(topic, b"%d" % n, key=b"%d" % n, on_delivery=delivered)
            producer.poll(0)
        producer.flush(30)
        tell(produced=len(stored))

    @staticmethod
    def member(bootstrap: str, topic: str, group: str, strategy: str, session: str) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": int(session),
                "heartbeat.interval.ms": int(session) // 5,
                "partition.assignment.strategy": strategy,
            }
        )
        consumer.subscribe([topic])
        owned, owing = None, False
        while not asked_to_close():
            got = [m for m in consumer.consume(500, 0.1) if m.error() is None]
            if (now := sorted(tp.partition for tp in consumer.assignment())) != owned:
                owned = now
                tell(assigned=owned)
            if got:
                tell(read=[[m.partition(), m.offset(), int(m.value())] for m in got])
            if owing := owing or bool(got):
                try:
                    consumer.commit(asynchronous=False)
                    owing = False
                except KafkaException as error:  # A commit may fail during a rebalance.
                    tell(commit_failed=repr(error))
                    # Another member now owns the partitions, and reads these records again.
                    owing = error.args[0].code() != KafkaError._NO_OFFSET
        consumer.close()
        tell(closed=True)

    @staticmethod
    def committed(bootstrap: str, topic: str, group: str, partitions: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        topic_partitions = [TopicPartition(topic, p) for p in range(int(partitions))]
        offsets = {
            partition.partition: partition.offset
            for partition in consumer.committed(topic_partitions, timeout=30)
        }
        tell(committed=[offsets[p] if offsets[p] >= 0 else None for p in range(int(partitions))])
        consumer.close()


CLIENTS: dict[str, Any] = {"kafka-python": KafkaPython, "aiokafka": AIOKafka, "confluent": Confluent}

if __name__ == "__main__":
    client, role, *arguments = sys.argv[1:]
    getattr(CLIENTS[client], role)(*arguments)
