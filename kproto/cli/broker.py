"""`kproto broker`: the embedded broker until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import Commands, setting, topic, user
from .client_snippets import how_to
from .watch import Teller, Told, add_shown, ended_by_signals, refuse_shown

if TYPE_CHECKING:
    import ssl

    from ..testing.certificates import Certificates

_JWKS = "sasl.oauthbearer.jwks.endpoint.url"


def add(commands: Commands) -> None:
    broker = commands.add_parser(
        "broker",
        help="an embedded broker that any Kafka client can use",
        description="Serve Kafka's protocol until Ctrl-C. Everything is kept in memory and gone at the end.",
    )
    broker.add_argument(
        "--listen",
        default="127.0.0.1:9092",
        metavar="[PROTOCOL://]HOST:PORT,...",
        help="default: 127.0.0.1:9092; port 0: any; protocols: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    )
    broker.add_argument(
        "--user",
        type=user,
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help="who may come in by SASL (PLAIN and SCRAM); may be repeated",
    )
    broker.add_argument(
        "--tls-self-signed",
        type=Path,
        metavar="FOLDER",
        help="make certificates for trials there, and say how clients use them",
    )
    broker.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="the broker's own certificate, with its key (PEM)"
    )
    broker.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="who vouches for clients (PEM); see ssl.client.auth"
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
        help=f"a broker setting under Kafka's name; {_JWKS}=file:///... checks tokens' signatures",
    )
    broker.add_argument("--trace", action="store_true", help="print a line for each request and its answer")
    add_shown(broker.add_argument_group("with --trace"))
    broker.set_defaults(run=_broker)


def _broker(options: argparse.Namespace) -> int:
    import asyncio
    import sys
    import time
    from contextlib import AsyncExitStack

    from ..broker.security.listeners import Listener, allowed_addresses
    from ..broker.server import Server
    from ..security.oauthbearer import unsecured
    from ..testing.proxy import WatchProxy

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            # With a trace, what listens is the proxy of `kproto watch`, and the broker stands behind it.
            server = Server(
                topics,
                settings,
                listen=[f"{listeners[0].protocol}://127.0.0.1:0"]
                if options.trace
                else [listener.text for listener in listeners],
                users=dict(options.user),
                tokens=None if settings.get(_JWKS) else unsecured(lambda: time.time_ns() // 1_000_000),
                tls=tls,
            )
            told = None if teller is None else Told(teller)
            try:
                await stack.enter_async_context(server)
                bootstrap = server.bootstrap
                if told is not None:
                    proxy = WatchProxy(bootstrap, listen=(listeners[0].host, listeners[0].port), tell=told)
                    bootstrap = (await stack.enter_async_context(proxy)).bootstrap
            except OSError as error:
                raise ConfigError("--listen", options.listen, allowed_addresses(error)) from None
            places = server.places if told is None else {listeners[0].protocol: bootstrap}
            if len(places) > 1 or listeners[0].protocol != "PLAINTEXT":
                bootstrap = ", ".join(f"{protocol}://{place}" for protocol, place in places.items())
            print(f"listening on {bootstrap}; Ctrl-C ends it", file=people, flush=True)
            if made is not None:
                print(how_to(places, made, dict(options.user), _client_auth(settings)), flush=True)
            await (asyncio.Event().wait() if told is None else told.in_vain())

    listeners = [Listener.parse(text) for text in options.listen.split(",")]
    settings = dict(options.set)
    if options.trace and (len(listeners) > 1 or listeners[0].tls):
        raise ConfigError("--trace", options.listen, "one listener, without TLS")
    topics = _topics(options.topic)
    if options.user and not any(listener.sasl for listener in listeners):
        allowed = "with a listener of SASL, as --listen SASL_PLAINTEXT://127.0.0.1:9092"
        raise ConfigError("--user", options.user[0][0], allowed)
    if not options.trace:
        refuse_shown(options, "with --trace")
    made, tls = _tls(options, settings, [listener.host for listener in listeners if listener.tls])
    teller = Teller(options) if options.trace else None
    people = sys.stderr if options.json else sys.stdout
    try:
        with ended_by_signals():
            asyncio.run(serve())
    except KeyboardInterrupt:
        if teller is not None:
            teller.end()
    return 0


def _tls(
    options: argparse.Namespace, settings: Mapping[str, str], hosts: Sequence[str]
) -> tuple[Certificates | None, ssl.SSLContext | None]:
    """The certificates that are made here, and what listeners with TLS on `hosts` speak."""
    auth = _client_auth(settings)
    folder, cert = options.tls_self_signed, options.tls_cert
    if not hosts:
        if folder is not None or cert is not None:
            raise ConfigError("--listen", options.listen, "SSL or SASL_SSL, for certificates to be shown")
        return None, None
    if (folder is None) == (cert is None):
        raise ConfigError(
            "--listen", options.listen, "with either --tls-self-signed FOLDER or --tls-cert FILE"
        )
    if folder is not None:
        from ..broker.server import advertised
        from ..testing.certificates import HOSTS, certificates

        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = certificates(folder, list(dict.fromkeys([*HOSTS, *map(advertised, hosts)])))
        except OSError as error:
            raise ConfigError("--tls-self-signed", str(folder), f"a folder ({error.strerror})") from None
        return made, made.context(auth)
    from ..broker.security.tls import server_context

    try:
        return None, server_context(cert, auth, options.tls_ca)
    except (OSError, TypeError) as error:
        allowed = "a PEM certificate with its key, and --tls-ca where clients are asked for theirs"
        raise ConfigError("--tls-cert", str(cert), f"{allowed} ({error})") from None


def _topics(given: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, partitions in given:
        if name in found:
            raise ConfigError("--topic", f"{name}:{partitions}", f"each name once: {name}:{found[name]}")
        found[name] = partitions
    return found


def _client_auth(settings: Mapping[str, str]) -> str:
    auth = settings.get("ssl.client.auth", "none")
    if auth not in ("none", "requested", "required"):
        raise ConfigError("ssl.client.auth", auth, "none, requested or required")
    return auth
