"""Kafka in Spark, without a jar: ``format("kproto")`` for batches, streams and as a sink.

`register` puts it into a session; `session` starts a small local one. The options are those of Spark's own
Kafka source, see `options`; what a stream promises is in `stream`; `behind` and `log_batches` are for
operators.
"""

from __future__ import annotations

from .progress import behind, log_batches
from .session import register, session
from .worker_output import quieten_this_process

__all__ = ["behind", "log_batches", "register", "session"]

quieten_this_process()
