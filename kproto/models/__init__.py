"""Models of other Kafka clients: state machines without I/O that join, fetch and commit as these clients do.

Each model follows one release of the client that it models, function by function, and cites that client's
source files. It also cites numbered rules, such as M95, which docs/rules states. A model loses and repeats
records wherever the client does. To read records in production, use the package `consumer`.

    world.join("c", kproto.models.sarama, topics=["flights"], group_id="readers")

The modules are java, java_2_6, kafka_go, librdkafka, sarama and sarama_cluster. Each has `VERSIONS`, `start`,
`step` and `next_deadline`, which `contract` describes. `zookeeper` is a model of the consumers of Kafka 0.8,
with an interface of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_modules
from .index import MODELS

if TYPE_CHECKING:
    from . import contract as contract
    from . import java as java
    from . import kafka_go as kafka_go
    from . import librdkafka as librdkafka
    from . import sarama as sarama
    from . import sarama_cluster as sarama_cluster
    from .java import java_2_6 as java_2_6


# `__getattr__` is hidden from type checkers, which would otherwise accept every attribute of this module.
if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, ["contract", *MODELS.values()])
