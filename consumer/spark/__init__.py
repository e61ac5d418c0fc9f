"""A Kafka source and sink for Spark without a jar: ``format("kproto")``.

`register` adds the source to a session, and `session` starts a small local session. The module `options`
lists the options, which have the names of Spark's own Kafka source.

The module `stream` describes the guarantees of a stream. `behind` and `log_batches` report the lag of a
query.
"""

from __future__ import annotations

from .progress import behind, log_batches
from .session import register, session
from .worker_output import filter_own_output

__all__ = ["behind", "log_batches", "register", "session"]

filter_own_output()
