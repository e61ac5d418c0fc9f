"""`kproto broker`: the embedded broker until Ctrl-C."""

from __future__ import annotations

import argparse

from .arguments import Commands, address, setting, topic


def add(commands: Commands) -> None:
    broker = commands.add_parser(
        "broker",
        help="an embedded broker that any Kafka client can use",
        description="Serve Kafka's protocol until Ctrl-C. Everything is kept in memory and gone at the end.",
    )
    broker.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 9092),
        metavar="HOST:PORT",
        help="default: 127.0.0.1:9092; port 0: any",
    )
    broker.add_argument(
        "--topic",
        type=topic,
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic; may be repeated",
    )
    broker.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker setting under Kafka's name",
    )
    broker.set_defaults(run=_broker)


def _broker(options: argparse.Namespace) -> int:
    import asyncio
    import contextlib

    from ..broker.server import Server

    async def serve() -> None:
        host, port = options.listen
        async with Server(
            topics=dict(options.topic), settings=dict(options.set), host=host, port=port
        ) as server:
            print(f"listening on {server.bootstrap}; Ctrl-C ends it", flush=True)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return 0
