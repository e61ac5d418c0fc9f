"""The blocking `Cluster`, by itself: who only asks a cluster imports nothing of consumers."""

from __future__ import annotations

from ..context_managers import Block
from ..operations.cluster import ClusterCalls
from ..option_docs import with_options
from .runtime import Threaded


@with_options()
class Cluster(ClusterCalls, Threaded, Block):
    """A blocking connection to a whole cluster. Raises `ConfigError` at once for a wrong address; connects
    when the first question is asked. Several threads may use it."""
