"""A Kafka source and sink for Spark without a jar: ``format("kproto")``.

`register` adds the source to a session, and `session` starts a small local session. The options are those of
Spark's own Kafka source, see `options`. The guarantees of a stream are in `stream`. `behind` and
`log_batches` are for operators.
"""

from __future__ import annotations

from .progress import behind, log_batches
from .session import register, session
from .worker_output import filter_own_output

__all__ = ["behind", "log_batches", "register", "session"]

filter_own_output()
