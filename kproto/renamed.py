"""What other clients' classes are called here: for the error that who imports one of them reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

CLASSES: Final[Mapping[str, str]] = {
    "KafkaConsumer": "Consumer",
    "KafkaProducer": "Producer",
    "KafkaAdminClient": "Cluster",
    "AdminClient": "Cluster",
    "DeserializingConsumer": "Consumer",
    "SerializingProducer": "Producer",
    "AIOKafkaConsumer": "AsyncConsumer",
    "AIOKafkaProducer": "AsyncProducer",
    "AIOKafkaAdminClient": "AsyncCluster",
    "AIOConsumer": "AsyncConsumer",
    "AIOProducer": "AsyncProducer",
    "ConsumerRebalanceListener": "RebalanceListener",
}


def unknown_name(module: str, name: str) -> AttributeError | ImportError:
    """What a package's `__getattr__` raises. `from ... import` makes a text of its own of an AttributeError,
    so it gets an ImportError for another client's name."""
    other = CLASSES.get(name)
    if other is None:
        return AttributeError(
            f"module {module!r} has no attribute {name!r}; help({module}) lists what there is"
        )
    told = f"module {module!r} has no {name!r}; it is called {other} here: from {module} import {other}"
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    importing = caller.f_globals.get("__name__") == "importlib._bootstrap"
    return ImportError(told, name=module) if importing else AttributeError(told)
