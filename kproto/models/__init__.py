"""Other clients' group members and consumers, each as it is, as machines without I/O.

Each module names its original (file, function, version) and has the same five things: `VERSIONS`, `State`,
`start`, `step` and `next_deadline`; `contract` says what they mean. Nothing here is for reading records in
production (that is the package `consumer`): these machines lose and double what their originals do.

    world.join("c", kproto.models.sarama, topics=["flights"], group_id="readers")

The modules are java, java_2_6, kafka_go, librdkafka, sarama and sarama_cluster.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import contract as contract
    from . import java as java
    from . import kafka_go as kafka_go
    from . import librdkafka as librdkafka
    from . import sarama as sarama
    from . import sarama_cluster as sarama_cluster
    from .java import java_2_6 as java_2_6


if not TYPE_CHECKING:  # for type checkers a name that there isn't would be one, of any type

    def __getattr__(name: str) -> ModuleType:
        """A client's module is imported when it is first named (PEP 562)."""
        from importlib import import_module

        from .index import CLIENTS

        modules = {path.rpartition(".")[2]: path for path in CLIENTS.values()}
        if name not in {*modules, "contract"}:
            known = ", ".join(sorted(modules))
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; the clients are {known}")
        return import_module(f"{__name__}.{modules.get(name, name)}")
