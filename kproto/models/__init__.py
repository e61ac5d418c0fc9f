"""Models of other Kafka clients: state machines without I/O that join, fetch and commit as these clients do.

Each model follows one release of a client, function by function, and cites the client's source files. It also
cites numbered rules such as M95, which are in docs/rules.

A model loses and repeats records wherever its client does. To read records in production, use the package
`consumer`.

    world.join("c", kproto.models.sarama, topics=["flights"], group_id="readers")

The modules java, java_2_6, kafka_go, librdkafka, sarama and sarama_cluster each have `VERSIONS`, `start`,
`step` and `next_deadline`: see `contract`. `zookeeper`, a model of the consumers of Kafka 0.8, has a
different interface.
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
