"""`kproto broker`: the embedded broker until Ctrl-C."""

from __future__ import annotations

import argparse
import errno

from ..errors import ConfigError
from .arguments import Commands, address, setting, topic
from .watch import Teller, add_filters


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
    broker.add_argument("--trace", action="store_true", help="print a line for each request and its answer")
    add_filters(broker.add_argument_group("with --trace"))
    broker.set_defaults(run=_broker)


def _broker(options: argparse.Namespace) -> int:
    import asyncio
    from contextlib import AsyncExitStack

    from ..broker.server import Server
    from ..testing.proxy import Proxy

    async def serve() -> None:
        host, port = options.listen
        async with AsyncExitStack() as stack:
            # With a trace, what listens is the proxy of `kproto watch`, and the broker stands behind it.
            place = ("127.0.0.1", 0) if options.trace else (host, port)
            server = Server(dict(options.topic), dict(options.set), *place)
            await stack.enter_async_context(server)
            bootstrap = server.bootstrap
            if teller is not None:
                proxy = Proxy(bootstrap, listen=(host, port), tell=teller.tell)
                bootstrap = (await stack.enter_async_context(proxy)).bootstrap
            print(f"listening on {bootstrap}; Ctrl-C ends it", flush=True)
            await asyncio.Event().wait()

    teller = Teller(options) if options.trace else None
    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        if teller is not None:
            teller.end()
    except OSError as error:
        raise ConfigError("--listen", "{}:{}".format(*options.listen), _cure(error)) from None
    return 0


def _cure(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "somebody listens there already; 127.0.0.1:0 takes any free port"
    unknown = error.errno is not None and error.errno < 0  # a code of getaddrinfo's
    if error.errno == errno.EADDRNOTAVAIL or unknown:
        return "an address of this machine, such as 127.0.0.1:9092 or, for all of its addresses, 0.0.0.0:9092"
    return f"an address that can be listened on ({error.strerror or error})"
