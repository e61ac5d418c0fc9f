"""`kproto watch`: a proxy that prints the requests and responses between clients and a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..addresses import address_text
from ..errors import ConfigError, ConnectionFailed
from .arguments import Subparsers, address, api, client_security, write

if TYPE_CHECKING:
    import ssl

    from ..inspect.exchanges import Address, Exchange
    from ..inspect.timeline import GroupEvent
    from ..testing.proxy import Frames


def add(commands: Subparsers) -> None:
    watch = commands.add_parser(
        "watch",
        help="run a proxy that prints the requests of any client to a cluster, and the responses",
        description="Listen for clients, forward everything to the cluster at BOOTSTRAP, and print a "
        "line per request and response. The addresses in responses are replaced, so that "
        "clients continue to connect to the proxy; nothing else is changed. Ctrl-C stops "
        "the proxy and prints a summary.",
    )
    watch.add_argument(
        "bootstrap", type=address, metavar="BOOTSTRAP", help="a broker of the cluster, HOST:PORT"
    )
    watch.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 19092),
        metavar="HOST:PORT",
        help="the proxy's address for clients (default: 127.0.0.1:19092; port 0 is any free port); other "
        "brokers get free ports",
    )
    add_output_options(watch)
    watch.add_argument(
        "--tls", action="store_true", help="use TLS to the cluster; clients connect to the proxy without TLS"
    )
    watch.add_argument(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="the CA certificates that the cluster's certificate is checked against (PEM); with --tls",
    )
    watch.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="Java's client.properties: its TLS settings are used to connect to the cluster; clients "
        "authenticate themselves by SASL",
    )
    watch.add_argument(
        "--pcap",
        type=Path,
        metavar="FILE",
        help="write all frames to a capture file for Wireshark, decrypted if the cluster uses TLS; "
        "the filters do not apply; passwords, proofs and tokens are omitted",
    )
    watch.set_defaults(run=_watch)


def add_output_options(parser: Any) -> None:
    """Add the options for the output format and for the filters to a parser or an argument group."""
    add_filters(parser)
    parser.add_argument("--json", action="store_true", help="print JSON lines in Kafka's JSON form")


def add_filters(parser: Any) -> None:
    """Add the option --html, and the options that filter exchanges (requests with their responses)."""
    parser.add_argument(
        "--api",
        type=api,
        action="append",
        metavar="API",
        help="print only exchanges of this API (requests with responses); may be repeated",
    )
    parser.add_argument(
        "--not-api",
        type=api,
        action="append",
        default=[],
        metavar="API",
        help="omit the exchanges of this API; may be repeated",
    )
    parser.add_argument("--client", metavar="ID", help="print only clients whose client id starts with ID")
    parser.add_argument("--group", metavar="ID", help="print only requests that name this group")
    parser.add_argument(
        "--all",
        action="store_true",
        help="include heartbeats and empty fetches, which are omitted by default",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page with the timeline of the groups and their requests when the command ends",
    )


def reject_output_options(options: argparse.Namespace, allowed: str) -> None:
    """Raise ConfigError if an option of `add_output_options` was given."""
    reject_filters(options, allowed)
    if options.json:
        raise ConfigError("--json", True, allowed)


def reject_filters(options: argparse.Namespace, allowed: str) -> None:
    """Raise ConfigError if an option of `add_filters` was given."""
    for name in ("api", "not_api", "client", "group", "all", "html"):
        if value := getattr(options, name):
            value_text: object = str(value) if isinstance(value, Path) else value
            if isinstance(value, list):
                value_text = ",".join(cast("list[str]", value))
            raise ConfigError(f"--{name.replace('_', '-')}", value_text, allowed)


def _watch(options: argparse.Namespace) -> int:
    import contextlib

    from ..broker.security.listeners import allowed_addresses
    from ..testing.proxy import WatchProxy

    printer = ExchangePrinter(options)
    bootstrap, port = address_text(*options.bootstrap), options.bootstrap[1]

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            frames = None if options.pcap is None else stack.enter_context(capture_file(options.pcap))
            handler = ExchangeHandler(printer)
            proxy = WatchProxy(
                bootstrap,
                listen=options.listen,
                tell=handler,
                on_disconnected=printer.history.add_disconnection,
                frames=frames,
                tls=_tls_context(options),
            )
            try:
                await stack.enter_async_context(proxy)
            # ConnectionFailed is an OSError, too. Without this clause, the next clause would report a failed
            # connection to the cluster as a failure of --listen.
            except ConnectionFailed:
                raise
            except OSError as error:
                listen_address = address_text(*options.listen)
                raise ConfigError("--listen", listen_address, allowed_addresses(error)) from None
            printer.print_message(f"clients can use {proxy.bootstrap} for {bootstrap}; press Ctrl-C to stop")
            await handler.wait_for_failure()

    try:
        run_until_interrupted(serve())
    except KeyboardInterrupt:
        printer.print_summary()
        if options.pcap is not None:
            decode_hint = (
                ""
                if port == 9092
                else f" (Wireshark decodes port {port} as Kafka with -d tcp.port=={port},kafka)"
            )
            printer.print_message(f"the frames: {options.pcap}{decode_hint}")
    return 0


@contextmanager
def capture_file(path: Path) -> Generator[Frames]:
    """Yield a function that writes a proxy's frames to a capture file."""
    import contextlib
    import sys
    import time

    from ..inspect.pcap import PcapWriter

    file = None
    try:
        file = path.open("wb")
        capture = PcapWriter(file)
    except OSError as error:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        raise ConfigError(
            "--pcap", str(path), f"cannot be written: {error.strerror or error}; allowed: a writable file"
        ) from None
    has_failed = False  # After a failed write, nothing more is written to the file, but the proxy continues.

    def write(client: Address, broker: Address, from_client: bool, frame: bytes | None) -> None:
        """Write a frame, or the end of the connection if `frame` is None."""
        nonlocal has_failed
        try:
            if frame is not None and not has_failed:
                capture.write_frame(client, broker, from_client, frame, time.time_ns())
            elif not has_failed:
                capture.close_connection(client, broker, time.time_ns())
        except OSError as error:
            has_failed = True
            print(f"kproto watch: stopped writing {path}: {error.strerror or error}", file=sys.stderr)

    try:
        yield write
    finally:
        with contextlib.suppress(OSError):  # If a write failed, `write` has already printed the error.
            file.close()


def run_until_interrupted(serve: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in an event loop. On SIGINT or SIGTERM, cancel it and raise KeyboardInterrupt."""
    import asyncio
    import signal

    async def run() -> None:
        # If a signal arrives immediately before the loop waits, its handler runs only when the loop wakes up.
        # add_signal_handler lets every signal wake the loop (signal.set_wakeup_fd), but replaces the handler.
        # The former handler is set again, because it also runs while a write to a full pipe blocks the loop.
        # NotImplementedError: on Windows, signals wake the loop anyway. RuntimeError: this is not the main
        # thread, and signal handlers run only in the main thread.
        handler = signal.getsignal(signal.SIGTERM)
        with suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
            signal.signal(signal.SIGTERM, handler)
        await serve

    with interrupted_by_signals():
        asyncio.run(run())


@contextmanager
def interrupted_by_signals() -> Generator[None]:
    """Make SIGTERM and SIGINT raise KeyboardInterrupt, as Ctrl-C does.

    Shells start background jobs with SIGINT ignored. Even then, SIGINT raises KeyboardInterrupt.
    """
    import signal
    import threading

    # Only the main thread may set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_sigterm(number: int, frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    previous_handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_sigterm),
    }
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _tls_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context of connections to the cluster, or None for connections without TLS."""
    import ssl

    if options.command_config is not None:
        from consumer.security import security_options

        for name, option_value in (("--tls", options.tls), ("--tls-ca", options.tls_ca)):
            if option_value:
                raise ConfigError(
                    name,
                    str(option_value),
                    "allowed only without --command-config, which contains the TLS settings",
                )
        settings = dict(client_security(options.command_config))
        protocol = (
            "SSL" if str(settings.get("security_protocol", "")).upper().endswith("SSL") else "PLAINTEXT"
        )
        ssl_settings = {name: value for name, value in settings.items() if name.startswith("ssl_")}
        tls = security_options({**ssl_settings, "security_protocol": protocol}).tls
        return None if tls is None else tls.context
    if not options.tls:
        if options.tls_ca is not None:
            raise ConfigError("--tls-ca", str(options.tls_ca), "allowed only with --tls")
        return None
    if options.tls_ca is None:
        return ssl.create_default_context()
    from consumer.security.stores import trust

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, "--tls-ca", str(options.tls_ca))
    return context


class ExchangeHandler:
    """The proxy's callback, which prints each exchange (a request with its response).

    If printing fails, for example because stdout is closed, `wait_for_failure` raises the error.

    The callback itself must not raise the error: otherwise the proxy would close the clients' connections as
    if the broker had failed.
    """

    def __init__(self, printer: ExchangePrinter) -> None:
        import asyncio

        self._printer = printer
        self._error: OSError | None = None
        self._failed = asyncio.Event()

    def __call__(self, exchange: Exchange) -> None:
        if self._error is not None:
            return
        try:
            self._printer.add(exchange)
        except OSError as error:
            self._error = error
            self._failed.set()

    async def wait_for_failure(self) -> None:
        """Wait until printing fails, and raise the OSError.

        If the caller cancels this method, later exchanges are still printed.
        """
        await self._failed.wait()
        assert self._error is not None
        raise self._error


class ExchangePrinter:
    """Prints each exchange when it has ended, and a summary when the command ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ..inspect.diagram_rows import DiagramBuilder
        from ..inspect.group_history import GroupHistory
        from ..inspect.member_names import MemberNames
        from ..inspect.transaction_history import TransactionHistory

        self.options = options
        if options.html is not None:
            # Write an empty page now, so that a file that is not writable is reported before the command
            # starts.
            write("--html", options.html, "")
        self._names = MemberNames()
        self.history = GroupHistory(self._names)
        self.builder = DiagramBuilder(self._names.of)
        self.transactions = TransactionHistory()
        self.began: int | None = None
        self.counts: dict[str, list[int]] = {}
        self.failed: dict[str, int] = {}

    def print_message(self, text: str) -> None:
        """Print a message for the user to stdout, or with --json to stderr.

        With --json, stdout contains only JSON lines.
        """
        import sys

        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange that has ended, and print it unless a filter excludes it."""
        import sys

        from ..inspect.diagram_rows import DiagramBuilder
        from ..inspect.exchange_json import write_json_line
        from ..inspect.exchange_lines import line

        if self.began is None:
            self.began = exchange.asked_at
            # The first exchange is time 0 of the page's diagrams and tables, even if the filters exclude it.
            self.builder = DiagramBuilder(self._names.of, began=self.began)
        self.history.add(exchange)
        self.transactions.add(exchange)
        if self.options.html is not None and self.matches_filters(exchange):
            self.builder.add(exchange)
        if exchange.ms is not None:
            self.counts.setdefault(exchange.api, []).append(exchange.ms)
        else:
            self.failed[exchange.api] = self.failed.get(exchange.api, 0) + 1
        if self._is_printed(exchange):
            if self.options.json:
                write_json_line(exchange, sys.stdout.write)
                print(flush=True)
            else:
                print(line(exchange, self.began), flush=True)
        for group, generation in self.history.take_generations():
            self._print_generation(group, generation, self.began)

    def _print_generation(self, group: str, event: GroupEvent, began: int) -> None:
        """Print a group's new generation and its cause, unless --client, --group or --api excludes it."""
        from ..inspect.exchange_json import generation_json
        from ..inspect.exchange_lines import generation_line
        from ..messages.json_form import one_line

        options = self.options
        is_api_excluded = "JoinGroup" in options.not_api or "JoinGroup" not in (options.api or ["JoinGroup"])
        if options.client or is_api_excluded or options.group not in (None, group):
            return
        is_json = options.json
        print(
            one_line(generation_json(group, event)) if is_json else generation_line(group, event, began),
            flush=True,
        )

    def _is_printed(self, exchange: Exchange) -> bool:
        from ..inspect.exchange_lines import is_quiet

        options = self.options
        return self.matches_filters(exchange) and (options.all or bool(options.api) or not is_quiet(exchange))

    def matches_filters(self, exchange: Exchange) -> bool:
        """Return whether the filters accept the exchange."""
        from ..inspect.exchange_lines import groups_of

        options = self.options
        if options.api and exchange.api not in options.api:
            return False
        if exchange.api in options.not_api or not exchange.client.startswith(options.client or ""):
            return False
        return options.group is None or options.group in groups_of(exchange)

    def print_summary(self) -> None:
        """Print each API's latencies, the transactions and the groups' history. With --html, write a page."""
        from statistics import median

        from ..printable import escape_unprintable

        self.history.finish()
        for group, generation in self.history.take_generations():
            self._print_generation(group, generation, self.began or 0)
        rows = [f"{'API':<28}{'answers':>8}{'none':>6}{'median ms':>11}{'most ms':>9}"]
        for name in sorted({*self.counts, *self.failed}):
            times = self.counts.get(name, [])
            median_text, maximum = (f"{median(times):.0f}", str(max(times))) if times else ("-", "-")
            rows.append(
                f"{name:<28}{len(times):>8}{self.failed.get(name, 0):>6}{median_text:>11}{maximum:>9}"
            )
        if len(rows) == 1:
            rows = ["no requests"]
        rows += [*self.transactions.lines(), *self.history.lines(self.began or 0)]
        self.print_message("\n" + "\n".join(map(escape_unprintable, rows)))
        if self.options.html is not None:
            write("--html", self.options.html, self._html_page())
            self.print_message(f"the timeline of the groups and their requests: {self.options.html}")

    def _html_page(self) -> str:
        """Add the groups' events to the diagram, and return the page with the timeline and the diagram."""
        from ..inspect.diagram_rows import Note
        from ..inspect.diagrams import conversation, page, section

        self.history.finish()
        selected_group = self.options.group
        groups = [
            (group, events)
            for group, events in sorted(self.history.events.items())
            if selected_group in (None, group)
        ]
        for group, events in groups:
            for event in events:
                if event.kind == "generation":
                    self.builder.add_cause(group, event.generation, event.reason)
                elif event.kind in ("disconnected", "removed"):
                    self.builder.add_note(Note(event.at, event.member, event.reason, ends_membership=True))
        diagram = self.builder.diagram()
        names = ", ".join(group for group, _ in groups)
        title = f"Groups: {names}" if groups else "No classic group was seen"
        parts = [
            section(events, self.began, f"Group {group}" if len(groups) > 1 else "")
            for group, events in groups
        ]
        return page(title, self.transactions.facts(), [*parts, *([conversation(diagram)] if diagram else [])])
