"""`kproto broker`: run the embedded broker until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import Subparsers, setting, topic, user
from .client_snippets import connection_snippets
from .watch import (
    ExchangeHandler,
    ExchangePrinter,
    add_output_options,
    reject_output_options,
    run_until_interrupted,
)

if TYPE_CHECKING:
    import ssl

    from ..testing.certificates import Certificates

_ADVERTISED = "advertised.listeners"
_MECHANISMS = "sasl.enabled.mechanisms"
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def add(commands: Subparsers) -> None:
    broker = commands.add_parser(
        "broker",
        help="run an embedded broker for any Kafka client",
        description="Serve Kafka's protocol until Ctrl-C. All data is kept in memory and lost at the end.",
    )
    broker.add_argument(
        "--listen",
        default="127.0.0.1:9092",
        metavar="[PROTOCOL://]HOST:PORT,...",
        help="addresses to listen on (default: 127.0.0.1:9092); port 0 is any free port; protocols: "
        "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    )
    broker.add_argument(
        "--advertise",
        metavar="[PROTOCOL://]HOST:PORT,...",
        help="the addresses that clients are told to connect to (Kafka's advertised.listeners), such as "
        "host.docker.internal:9092; default: those of --listen",
    )
    broker.add_argument(
        "--user",
        type=user,
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help="a user who can log in with SASL (PLAIN and SCRAM); may be repeated",
    )
    broker.add_argument(
        "--tls-self-signed",
        type=Path,
        metavar="FOLDER",
        help="create test certificates in this folder, and print client settings for them",
    )
    broker.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="the broker's certificate and its key (PEM)"
    )
    broker.add_argument(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="the CA certificates that client certificates are checked against (PEM); see ssl.client.auth",
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
        help="a broker config by Kafka's name; may be repeated; "
        f"with {_JWKS_URL} token signatures are verified",
    )
    broker.add_argument(
        "--unsecured-tokens",
        action="store_true",
        help="accept OAUTHBEARER tokens without a signature, so that a client can claim to be any user; for "
        "tests",
    )
    broker.add_argument(
        "--telemetry",
        action="store_true",
        help="receive the metrics that clients push (KIP-714), if a client metrics resource requests them: "
        "kproto configs alter client-metrics NAME --set 'metrics=*'",
    )
    broker.add_argument("--trace", action="store_true", help="print a line per request and response")
    add_output_options(broker.add_argument_group("with --trace"))
    broker.set_defaults(run=_run_broker)


def _run_broker(options: argparse.Namespace) -> int:
    import asyncio
    import sys
    import time
    from contextlib import AsyncExitStack

    from ..broker.security.listeners import Listener, allowed_addresses
    from ..broker.server import Server
    from ..group.protocol import GroupNotice
    from ..security.oauthbearer import unsecured
    from ..testing.proxy import WatchProxy, now_ms

    listeners = [Listener.parse(text) for text in options.listen.split(",")]
    settings = dict(options.set)
    if options.advertise is not None:
        if _ADVERTISED in settings:
            raise ConfigError("--advertise", options.advertise, f"allowed only without --set {_ADVERTISED}")
        settings[_ADVERTISED] = options.advertise
    advertised_text = settings.get(_ADVERTISED, "")
    # With --trace, only the proxy advertises this address to the clients; the broker itself does not.
    advertised_address = (
        _one_address(settings.pop(_ADVERTISED)) if options.trace and advertised_text else None
    )
    _check_tokens(settings, options.unsecured_tokens)
    if options.trace and (len(listeners) > 1 or listeners[0].tls):
        raise ConfigError("--trace", options.listen, "allowed only with a single listener, without TLS")
    topics = _partition_counts(options.topic)
    if options.user and not any(listener.sasl for listener in listeners):
        allowed = "with a SASL listener, such as --listen SASL_PLAINTEXT://127.0.0.1:9092"
        raise ConfigError("--user", options.user[0][0], allowed)
    if not options.trace:
        reject_output_options(options, "allowed only with --trace")
    tls_hosts = [listener.host for listener in listeners if listener.tls]
    generated_certificates, tls = _listener_tls(options, settings, tls_hosts)
    printer = ExchangePrinter(options) if options.trace else None
    message_stream = sys.stderr if options.json else sys.stdout

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            # With --trace, clients connect to the proxy of `kproto watch`, and the broker runs behind it.
            server = Server(
                topics,
                settings,
                listen=[f"{listeners[0].protocol}://127.0.0.1:0"]
                if options.trace
                else [listener.text for listener in listeners],
                users=dict(options.user),
                tokens=unsecured(lambda: time.time_ns() // 1_000_000) if options.unsecured_tokens else None,
                tls=tls,
                telemetry=options.telemetry,
            )
            handler = None if printer is None else ExchangeHandler(printer)
            try:
                await stack.enter_async_context(server)
                bootstrap = server.bootstrap
                if handler is not None:
                    assert printer is not None
                    history = printer.history

                    def record_notices(_: object, actions: Sequence[object], __: int) -> None:
                        for action in actions:
                            if isinstance(action, GroupNotice):
                                history.add_notice(action, now_ms())

                    server.observe(record_notices)
                    proxy = WatchProxy(
                        bootstrap,
                        listen=(listeners[0].host, listeners[0].port),
                        advertise=advertised_address,
                        tell=handler,
                        on_disconnected=history.add_disconnection,
                    )
                    bootstrap = (await stack.enter_async_context(proxy)).bootstrap
            except OSError as error:
                raise ConfigError("--listen", options.listen, allowed_addresses(error)) from None
            addresses = server.places if handler is None else {listeners[0].protocol: bootstrap}
            if len(addresses) > 1 or listeners[0].protocol != "PLAINTEXT":
                bootstrap = ", ".join(f"{protocol}://{address}" for protocol, address in addresses.items())
            advertised_note = f", advertised as {advertised_text}" if advertised_text else ""
            print(
                f"listening on {bootstrap}{advertised_note}; press Ctrl-C to stop",
                file=message_stream,
                flush=True,
            )
            if options.unsecured_tokens:
                print(
                    "warning: tokens need no signature (--unsecured-tokens): every client can be every user",
                    file=message_stream,
                    flush=True,
                )
            if generated_certificates is not None:
                print(
                    connection_snippets(
                        addresses, generated_certificates, dict(options.user), _client_auth(settings)
                    ),
                    flush=True,
                )
            await (asyncio.Event().wait() if handler is None else handler.wait_for_failure())

    try:
        run_until_interrupted(serve())
    except KeyboardInterrupt:
        if printer is not None:
            printer.print_summary()
    return 0


def _one_address(text: str) -> tuple[str, int]:
    """Parse the advertised address of a broker with one listener."""
    from ..broker.security.listeners import Listener

    listener = Listener.parse(text)
    if not listener.port:
        raise ConfigError("--advertise", text, "allowed: a port from 1 to 65535")
    return listener.host, listener.port


def _listener_tls(
    options: argparse.Namespace, settings: Mapping[str, str], hosts: Sequence[str]
) -> tuple[Certificates | None, ssl.SSLContext | None]:
    """Return the generated certificates and the TLS context for the TLS listeners on `hosts`.

    The certificates are None unless --tls-self-signed is used. Without `hosts`, both results are None.
    """
    client_auth = _client_auth(settings)
    folder, cert = options.tls_self_signed, options.tls_cert
    if not hosts:
        if folder is not None or cert is not None:
            raise ConfigError(
                "--listen",
                options.listen,
                "a certificate is used only by an SSL or SASL_SSL listener: add such a listener",
            )
        return None, None
    if (folder is None) == (cert is None):
        raise ConfigError(
            "--listen",
            options.listen,
            "an SSL or SASL_SSL listener needs either --tls-self-signed FOLDER or --tls-cert FILE",
        )
    if folder is not None:
        from ..broker.security.listeners import Listener
        from ..broker.server import advertised
        from ..testing.certificates import HOSTS, certificates

        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            advertised_texts = settings[_ADVERTISED].split(",") if settings.get(_ADVERTISED) else []
            advertised_hosts = [Listener.parse(text.strip()).host for text in advertised_texts]
            certified_hosts = list(dict.fromkeys([*HOSTS, *map(advertised, hosts), *advertised_hosts]))
            generated = certificates(folder, certified_hosts)
        except OSError as error:
            raise ConfigError(
                "--tls-self-signed",
                str(folder),
                f"cannot be used: {error.strerror}; allowed: a writable folder",
            ) from None
        return generated, generated.context(client_auth)
    from ..broker.security.tls import server_context

    try:
        return None, server_context(cert, client_auth, options.tls_ca)
    except (OSError, TypeError) as error:
        allowed = (
            "allowed: a PEM certificate with its key, "
            "and --tls-ca if ssl.client.auth requests client certificates"
        )
        raise ConfigError("--tls-cert", str(cert), f"{allowed} ({error})") from None


def _check_tokens(settings: dict[str, str], accepts_unsigned: bool) -> None:
    """Raise ConfigError if OAUTHBEARER is enabled with no way to validate tokens, or with two."""
    if accepts_unsigned and settings.get(_JWKS_URL):
        raise ConfigError("--unsecured-tokens", True, f"allowed only without {_JWKS_URL}")
    is_oauthbearer_enabled = "OAUTHBEARER" in settings.get(_MECHANISMS, "").split(",")
    if is_oauthbearer_enabled and not accepts_unsigned and not settings.get(_JWKS_URL):
        allowed = f"with OAUTHBEARER also {_JWKS_URL}=file:///..., or --unsecured-tokens"
        raise ConfigError(_MECHANISMS, settings[_MECHANISMS], allowed)


def _partition_counts(topics: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Map each topic to its number of partitions. Raises ConfigError for a repeated topic."""
    partition_counts: dict[str, int] = {}
    for name, partitions in topics:
        if name in partition_counts:
            raise ConfigError(
                "--topic",
                f"{name}:{partitions}",
                f"allowed: each topic once; {name}:{partition_counts[name]} was given before",
            )
        partition_counts[name] = partitions
    return partition_counts


def _client_auth(settings: Mapping[str, str]) -> str:
    """Return the value of ssl.client.auth. Raises ConfigError for an unknown value."""
    client_auth = settings.get("ssl.client.auth", "none")
    if client_auth not in ("none", "requested", "required"):
        raise ConfigError("ssl.client.auth", client_auth, "allowed: none, requested or required")
    return client_auth
