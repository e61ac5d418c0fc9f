"""The blocking `Cluster`, by itself: who only asks a cluster imports nothing of consumers."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ..cluster import ClusterCalls
from .threads import Threaded


class Cluster(ClusterCalls, Threaded):
    """A blocking connection to a whole cluster. Raises `ConfigError` at once for a wrong address; connects
    when the first question is asked. Several threads may use it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
