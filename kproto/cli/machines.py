"""All state machines by name, for `kproto show` and for the documentation that draws them.

A state machine is a `Table`, or the `Edges` between states. The module of a state machine is imported only to
draw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from ..machine import Drawing, draw, draw_edges

# Name -> the module of a state machine, and the name of its `Table` or `Edges` in the module.
MACHINES: Final[Mapping[str, tuple[str, str]]] = {
    # The group coordinator and the group member of the classic protocol, and the transaction coordinator.
    "coordinator": ("kproto.group.classic.coordinator.table", "TABLE"),
    "member": ("kproto.group.classic.member.table", "TABLE"),
    "transaction": ("kproto.transactions.table", "TABLE"),
    # The group members and further state machines of other clients.
    "java": ("kproto.models.java.state", "EDGES"),
    "java-position": ("kproto.models.java.state", "FETCH_EDGES"),
    "java-thread": ("kproto.models.java.state", "BLOCKED_EDGES"),
    "librdkafka": ("kproto.models.librdkafka.state", "EDGES"),
    "librdkafka-coordinator": ("kproto.models.librdkafka.state", "COORD_EDGES"),
    "librdkafka-partition": ("kproto.models.librdkafka.state", "TOPPAR_EDGES"),
    "kafka-go": ("kproto.models.kafka_go.state", "EDGES"),
    "kafka-go-partition": ("kproto.models.kafka_go.state", "READER_EDGES"),
    "sarama": ("kproto.models.sarama.consumer_group_state", "EDGES"),
    "sarama-cluster": ("kproto.models.sarama_cluster.consumer_state", "EDGES"),
    # kproto's own client.
    "connection": ("consumer.engine.network.connection", "EDGES"),
    "login": ("consumer.engine.network.login", "EDGES"),
    "position": ("consumer.engine.positions.partition_states", "EDGES"),
    "producer-transaction": ("consumer.engine.producer.transaction_states", "EDGES"),
}


def drawing_of(name: str) -> Drawing:
    """Return the states and transitions of a state machine, and the cells if it is a `Table`."""
    module, attribute = MACHINES[name]
    machine: Any = vars(import_module(module))[attribute]
    return draw(machine) if attribute == "TABLE" else draw_edges(machine)
