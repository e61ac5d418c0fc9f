"""Kafka's consumer protocol in pure Python, and the public names of kproto's clients.

    from kproto import Consumer, Producer, running

    Consumer, AsyncConsumer    read partitions, as a member of a group or by assignment
    ConsumerGroup, AsyncConsumerGroup
                               a member that calls a handler for each of its partitions, as in sarama
    Producer, AsyncProducer    write records
    Admin, AsyncAdmin          create topics, look up offsets, manage groups, send any request
    TopicPartition             the name of a topic and the number of a partition
    RebalanceListener          callbacks for changes of the assigned partitions
    ConsumerRecord, Delivery, RecordMetadata, CommittedOffset, OffsetAt, GroupMetadata, GroupChange,
    DeliveryStatus
                               types that these classes return, for annotations
    running                    an embedded broker for the duration of a `with` block

The modules below are imported separately:

    kproto.messages            all requests and responses; `kproto.messages.index` finds them by key or name
    kproto.messages.headers    requests and responses with headers; kproto.wire.frame adds the size prefix
    kproto.wire                the declaration of messages; `kproto.wire.flat_tuples` decodes to plain tuples
    kproto.records             record batches as rows; `kproto.records.columns`: as Arrow columns
    kproto.group               the group coordinator and the group member, as state machines without I/O
    kproto.models              members of other clients (sarama, librdkafka, ...), without I/O
    kproto.broker.server       an embedded broker for any client
    kproto.testing.strategies  Hypothesis strategies for all messages and batches
    kproto.testing.plugin      the pytest fixture `kafka`, a broker for each test
    kproto.errors              all exceptions
    consumer                   the clients; `consumer.spark` is a data source for Spark

`import kproto` loads neither these modules nor the clients. A module is imported when a public name that it
defines is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from .lazy_imports import lazy_attributes
from .version import __version__ as __version__

if TYPE_CHECKING:
    from consumer import Admin as Admin
    from consumer import AsyncAdmin as AsyncAdmin
    from consumer import AsyncConsumer as AsyncConsumer
    from consumer import AsyncConsumerGroup as AsyncConsumerGroup
    from consumer import AsyncProducer as AsyncProducer
    from consumer import CommittedOffset as CommittedOffset
    from consumer import Consumer as Consumer
    from consumer import ConsumerGroup as ConsumerGroup
    from consumer import ConsumerRecord as ConsumerRecord
    from consumer import Delivery as Delivery
    from consumer import DeliveryStatus as DeliveryStatus
    from consumer import GroupChange as GroupChange
    from consumer import GroupMetadata as GroupMetadata
    from consumer import OffsetAt as OffsetAt
    from consumer import Producer as Producer
    from consumer import RebalanceListener as RebalanceListener
    from consumer import RecordMetadata as RecordMetadata

    from .broker.server import running as running
    from .group.subscription import TopicPartition as TopicPartition

# Maps a name to the module that defines it: a module of this package, or the package `consumer`.
_SOURCES = {
    "Admin": "consumer",
    "AsyncAdmin": "consumer",
    "AsyncConsumer": "consumer",
    "AsyncConsumerGroup": "consumer",
    "AsyncProducer": "consumer",
    "CommittedOffset": "consumer",
    "Consumer": "consumer",
    "ConsumerGroup": "consumer",
    "ConsumerRecord": "consumer",
    "Delivery": "consumer",
    "DeliveryStatus": "consumer",
    "GroupChange": "consumer",
    "GroupMetadata": "consumer",
    "OffsetAt": "consumer",
    "Producer": "consumer",
    "RebalanceListener": "consumer",
    "RecordMetadata": "consumer",
    "TopicPartition": ".group.subscription",
    "running": ".broker.server",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncConsumerGroup",
    "AsyncProducer",
    "CommittedOffset",
    "Consumer",
    "ConsumerGroup",
    "ConsumerRecord",
    "Delivery",
    "DeliveryStatus",
    "GroupChange",
    "GroupMetadata",
    "OffsetAt",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
    "running",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _import_consumer() -> ModuleType:
    """Return the installed package `consumer`, even if the script's folder contains a consumer.py.

    Warns if such a consumer.py exists. Raises ImportError if that file was already imported, or if the
    package is not installed.
    """
    import sys
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    from pathlib import Path

    package_init = Path(__file__).resolve().parents[1] / "consumer" / "__init__.py"

    def is_package_init(path: str | None) -> bool:
        return path is not None and Path(path).resolve() == package_init

    imported = sys.modules.get("consumer")
    if imported is not None:
        if not is_package_init(getattr(imported, "__file__", None)):
            path = getattr(imported, "__file__", None) or imported
            raise ImportError(
                f"{path} was imported under the name 'consumer' and hides kproto's package: rename it"
            )
        return imported
    spec = find_spec("consumer")
    if spec is not None and is_package_init(spec.origin):
        import consumer

        return consumer
    if spec is not None and spec.origin is not None:
        import warnings

        warnings.warn(
            f"{spec.origin} has the name of kproto's client, 'consumer', and can't be imported beside it: "
            "'import consumer' means kproto's from here on. Rename yours",
            stacklevel=4,
        )
    spec = spec_from_file_location(
        "consumer", package_init, submodule_search_locations=[str(package_init.parent)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"kproto's package 'consumer' is missing at {package_init}: reinstall kproto")
    sys.modules["consumer"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_source(module: str) -> ModuleType:
    return _import_consumer() if module == "consumer" else import_module(module, __name__)


# Hidden from type checkers, which would otherwise accept any attribute of this package.
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, _SOURCES, _import_source)
