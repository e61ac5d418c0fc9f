"""The blocking `Cluster`, by itself: who only asks a cluster imports nothing of consumers."""

from __future__ import annotations

from ..block import Block
from ..cluster import ClusterCalls
from ..described import with_options
from .threads import Threaded


@with_options()
class Cluster(ClusterCalls, Threaded, Block):
    """A blocking connection to a whole cluster. Raises `ConfigError` at once for a wrong address; connects
    when the first question is asked. Several threads may use it."""
