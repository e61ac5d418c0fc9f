"""Start the broker for the examples, or use an existing one."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager

from kproto import Admin, running
from kproto.errors import KprotoError


@contextmanager
def broker(description: str, topics: dict[str, int]) -> Generator[str]:
    """Create the topics on the cluster at --bootstrap, by default an embedded broker; yield the address."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="your Kafka; default: an embedded broker")
    options = parser.parse_args()
    if options.bootstrap is None:
        with running(topics=topics) as server:
            yield server.bootstrap
    else:
        try:
            with Admin(options.bootstrap) as admin:
                admin.create_topics(topics, exist_ok=True)
        except KprotoError as error:
            parser.exit(1, f"{error}\n")
        yield options.bootstrap
