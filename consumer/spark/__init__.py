"""Kafka in Spark, without a jar: ``format("kproto")`` for batches, streams and as a sink.

`register` puts it into a session; `session` starts a small local one. The options are those of Spark's own
Kafka source, see `options`; what a stream promises is in `stream`.
"""

from __future__ import annotations

from .session import register, session

__all__ = ["register", "session"]
