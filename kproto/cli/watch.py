"""`kproto watch`: what any client says to any cluster, line by line."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, ConnectionFailed
from .arguments import Commands, address, api, let_in, write

if TYPE_CHECKING:
    import ssl

    from ..inspect.exchanges import Address, Exchange
    from ..testing.proxy import Frames


def add(commands: Commands) -> None:
    watch = commands.add_parser(
        "watch",
        help="a proxy that shows what any client says to a cluster",
        description="Listen for clients, pass all on to the cluster at BOOTSTRAP, and print a line for "
        "each request and its answer. The addresses in answers are replaced, so that clients go on coming "
        "through here; nothing else is changed. Ctrl-C ends it, and prints what was seen.",
    )
    watch.add_argument(
        "bootstrap", type=address, metavar="BOOTSTRAP", help="a broker of the cluster, HOST:PORT"
    )
    watch.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 19092),
        metavar="HOST:PORT",
        help="for the clients (default: 127.0.0.1:19092; port 0: any); other brokers get free ports",
    )
    add_shown(watch)
    watch.add_argument(
        "--tls", action="store_true", help="speak TLS to the cluster; clients speak none to here"
    )
    watch.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="who vouches for the cluster (PEM); with --tls"
    )
    watch.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="Java's client.properties: its TLS is spoken to the cluster; SASL is the clients' own business",
    )
    watch.add_argument(
        "--pcap",
        type=Path,
        metavar="FILE",
        help="write all frames there as a capture for Wireshark, those of a TLS cluster decrypted; the "
        "filters don't hold for it; passwords, proofs and tokens of logins are left out",
    )
    watch.set_defaults(run=_watch)


def add_shown(parser: Any) -> None:
    """What is shown, and in which form; `parser` may be a group of arguments, too."""
    add_filters(parser)
    parser.add_argument("--json", action="store_true", help="JSON lines, in Kafka's JSON form")


def add_filters(parser: Any) -> None:
    """What is shown, and the page at the end."""
    parser.add_argument(
        "--api", type=api, action="append", metavar="API", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--not-api", type=api, action="append", default=[], metavar="API", help="not this one"
    )
    parser.add_argument("--client", metavar="ID", help="only clients whose id begins with this")
    parser.add_argument("--group", metavar="ID", help="only what names this group")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also heartbeats and fetches that bring nothing new, which are left out",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="at the end, a page there: the groups' life, and who asked what",
    )


def refuse_shown(options: argparse.Namespace, allowed: str) -> None:
    """Raises ConfigError if something of `add_shown` was said."""
    refuse_filters(options, allowed)
    if options.json:
        raise ConfigError("--json", True, allowed)


def refuse_filters(options: argparse.Namespace, allowed: str) -> None:
    """Raises ConfigError if something of `add_filters` was said."""
    for name in ("api", "not_api", "client", "group", "all", "html"):
        if given := getattr(options, name):
            told: object = str(given) if isinstance(given, Path) else given
            if isinstance(given, list):
                told = ",".join(cast("list[str]", given))
            raise ConfigError(f"--{name.replace('_', '-')}", told, allowed)


def _watch(options: argparse.Namespace) -> int:
    import asyncio
    import contextlib

    from ..broker.security.listeners import allowed_addresses
    from ..testing.proxy import WatchProxy

    teller = Teller(options)
    host, port = options.bootstrap

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as open_:
            frames = None if options.pcap is None else open_.enter_context(captured(options.pcap))
            told = Told(teller)
            proxy = WatchProxy(
                f"{host}:{port}", listen=options.listen, tell=told, frames=frames, tls=_context(options)
            )
            try:
                await open_.enter_async_context(proxy)
            except ConnectionFailed:  # of the cluster; it is an OSError, too
                raise
            except OSError as error:
                where = "{}:{}".format(*options.listen)
                raise ConfigError("--listen", where, allowed_addresses(error)) from None
            teller.say(f"clients may use {proxy.bootstrap} for {host}:{port}; Ctrl-C ends it")
            await told.in_vain()

    try:
        with ended_by_signals():
            asyncio.run(serve())
    except KeyboardInterrupt:
        teller.end()
        if options.pcap is not None:
            known = "" if port == 9092 else f" (for the dissector of port {port}: -d tcp.port=={port},kafka)"
            teller.say(f"the frames: {options.pcap}{known}")
    return 0


@contextmanager
def captured(path: Path) -> Generator[Frames]:
    """A capture in the file, as what a proxy tells its frames to."""
    import contextlib
    import sys
    import time

    from ..inspect.pcap import Capture

    file = None
    try:
        file = path.open("wb")
        capture = Capture(file)
    except OSError as error:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        raise ConfigError(
            "--pcap", str(path), f"a file that can be written ({error.strerror or error})"
        ) from None
    full = False  # the clients go on all the same

    def take(client: Address, broker: Address, asking: bool, frame: bytes | None) -> None:
        nonlocal full
        try:
            if frame is not None and not full:
                capture.take(client, broker, asking, frame, time.time_ns())
            elif not full:
                capture.over(client, broker, time.time_ns())
        except OSError as error:
            full = True
            print(f"kproto watch: {path} ends here: {error.strerror or error}", file=sys.stderr)

    try:
        yield take
    finally:
        with contextlib.suppress(OSError):  # said already
            file.close()


@contextmanager
def ended_by_signals() -> Generator[None]:
    """SIGTERM ends it as Ctrl-C does; so does SIGINT where it was ignored, as shells start what runs in the
    background.
    """
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return

    def as_ctrl_c(number: int, frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, as_ctrl_c),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _context(options: argparse.Namespace) -> ssl.SSLContext | None:
    import ssl

    if options.command_config is not None:
        from consumer.security import security_options

        for name, given in (("--tls", options.tls), ("--tls-ca", options.tls_ca)):
            if given:
                raise ConfigError(name, str(given), "not beside --command-config, which says it")
        found = dict(let_in(options.command_config))
        secured = "SSL" if str(found.get("security_protocol", "")).upper().endswith("SSL") else "PLAINTEXT"
        own = {name: value for name, value in found.items() if name.startswith("ssl_")}
        tls = security_options({**own, "security_protocol": secured}).tls
        return None if tls is None else tls.context
    if not options.tls:
        if options.tls_ca is not None:
            raise ConfigError("--tls-ca", str(options.tls_ca), "with --tls")
        return None
    if options.tls_ca is None:
        return ssl.create_default_context()
    from consumer.security.stores import trust

    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(made, "--tls-ca", str(options.tls_ca))
    return made


class Told:
    """What a proxy tells its exchanges to, made in its event loop. Where nobody reads on, that ends the
    command: the clients' connections must not break of it, one after the other, as if it were the broker.
    """

    def __init__(self, teller: Teller) -> None:
        import asyncio

        self._teller = teller
        self._why: OSError | None = None
        self._over = asyncio.Event()

    def __call__(self, exchange: Exchange) -> None:
        if self._why is not None:
            return
        try:
            self._teller.tell(exchange)
        except OSError as error:
            self._why = error
            self._over.set()

    async def in_vain(self) -> None:
        """Waits until something can't be told, and raises why. Who is cancelled here may tell on: what Ctrl-C
        cuts off is told, too."""
        await self._over.wait()
        assert self._why is not None
        raise self._why


class Teller:
    """Prints exchanges as they end, and at the end what they were together."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ..inspect.diagram_rows import Picker
        from ..inspect.group_history import Lives
        from ..inspect.member_names import Names
        from ..inspect.transaction_history import Transactions

        self.options = options
        if options.html is not None:
            write("--html", options.html, "")  # said now, and not after an hour
        names = Names()
        self.lives = Lives(names)
        self.picker = Picker(names.of)
        self.transactions = Transactions()
        self.began: int | None = None
        self.counts: dict[str, list[int]] = {}
        self.failed: dict[str, int] = {}

    def say(self, text: str) -> None:
        """A line for people: not between lines of JSON."""
        import sys

        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def tell(self, exchange: Exchange) -> None:
        """One exchange is over."""
        from ..inspect.exchange_lines import line, to_json
        from ..messages.json_form import one_line

        if self.began is None:
            self.began = exchange.asked_at
        self.lives.take(exchange)
        self.transactions.take(exchange)
        if self.options.html is not None and self.lets_through(exchange):
            self.picker.take(exchange)
        if exchange.ms is not None:
            self.counts.setdefault(exchange.api, []).append(exchange.ms)
        else:
            self.failed[exchange.api] = self.failed.get(exchange.api, 0) + 1
        if self._shown(exchange):
            told = one_line(to_json(exchange)) if self.options.json else line(exchange, self.began)
            print(told, flush=True)

    def _shown(self, exchange: Exchange) -> bool:
        from ..inspect.exchange_lines import is_quiet

        options = self.options
        return self.lets_through(exchange) and (options.all or bool(options.api) or not is_quiet(exchange))

    def lets_through(self, exchange: Exchange) -> bool:
        """What the filters let through."""
        from ..inspect.exchange_lines import groups_of

        options = self.options
        if options.api and exchange.api not in options.api:
            return False
        if exchange.api in options.not_api or not exchange.client.startswith(options.client or ""):
            return False
        return options.group is None or options.group in groups_of(exchange)

    def end(self) -> None:
        """What was seen: each API with its count, what became of transactions, and each group's life."""
        from statistics import median

        from ..wire.spans import escape_unprintable

        rows = [f"{'API':<28}{'answers':>8}{'none':>6}{'median ms':>11}{'most ms':>9}"]
        for name in sorted({*self.counts, *self.failed}):
            took = self.counts.get(name, [])
            middle, most = (f"{median(took):.0f}", str(max(took))) if took else ("-", "-")
            rows.append(f"{name:<28}{len(took):>8}{self.failed.get(name, 0):>6}{middle:>11}{most:>9}")
        rows += [*self.transactions.lines(), *self.lives.lines(self.began or 0)]
        self.say("\n" + "\n".join(map(escape_unprintable, rows)))
        if self.options.html is not None:
            write("--html", self.options.html, self._page())
            self.say(f"the groups' life, and who asked what: {self.options.html}")

    def _page(self) -> str:
        from ..inspect.diagrams import conversation, page, section

        events, asked = self.lives.all(), self.picker.picked()
        title = f"Groups: {', '.join(sorted(self.lives.events))}" if events else "No group was seen"
        parts = [*([section(events)] if events else []), *([conversation(asked)] if asked else [])]
        return page(title, self.transactions.facts(), parts)
