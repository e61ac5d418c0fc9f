"""`kproto tokens`: delegation tokens, with which clients log in without their own credentials (KIP-48)."""

from __future__ import annotations

import argparse
import binascii
from base64 import b64decode
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import Subparsers, duration, principal, read_secret
from .connection import add_execute, add_verb, add_verbs, admin_client, say_not_executed
from .tables import print_json, print_table

if TYPE_CHECKING:
    from consumer.engine.admin.delegation_tokens import DelegationToken

_HMAC_VARIABLE = "KPROTO_TOKEN_HMAC"
_COLUMNS = (
    ("TOKENID", 15),
    ("HMAC", 30),
    ("OWNER", 15),
    ("REQUESTER", 15),
    ("RENEWERS", 25),
    ("ISSUEDATE", 15),
    ("EXPIRYDATE", 15),
    ("MAXDATE", 15),
)


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "tokens",
        help_text="create, renew, expire and describe delegation tokens",
        description="Manage delegation tokens. The columns are those of kafka-delegation-tokens. The client "
        "must log in, but not with a token.",
    )
    create = add_verb(
        verbs,
        "create",
        _create,
        "create a token, and print it with its HMAC",
        description="Create a token. A client logs in with the id of the token as user name and with the "
        "HMAC as password.",
    )
    create.add_argument(
        "--owner-principal",
        type=principal,
        metavar="TYPE:NAME",
        help="the owner, such as User:alice; default: the user who logs in",
    )
    create.add_argument(
        "--renewer-principal",
        type=principal,
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="a principal who may renew the token, besides its owner; may be repeated",
    )
    create.add_argument(
        "--max-life-time-period",
        type=_period,
        metavar="TIME",
        help="how long the token can be renewed, such as 24h; default: delegation.token.max.lifetime.ms of "
        "the broker",
    )
    renew = add_verb(verbs, "renew", _renew, "extend the lifetime of a token")
    _add_hmac(renew)
    renew.add_argument(
        "--renew-time-period",
        type=_period,
        metavar="TIME",
        help="how long the token is valid from now; default: delegation.token.expiry.time.ms of the broker",
    )
    expire = add_verb(verbs, "expire", _expire, "let a token expire")
    _add_hmac(expire)
    expire.add_argument(
        "--expiry-time-period",
        type=_period,
        metavar="TIME",
        help="how long the token remains valid; default: it expires at once",
    )
    add_execute(expire, "let the token expire")
    describe = add_verb(verbs, "describe", _describe, "print the tokens that the user may see")
    describe.add_argument(
        "--owner-principal",
        type=principal,
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="print only tokens that this principal owns or may renew; may be repeated",
    )


def _period(text: str) -> int | None:
    """Return the ms in a duration, such as "24h" or "86400000"; None for "-1", the default."""
    if text == "-1":
        return None
    return duration(f"{text}ms" if text.isdigit() else text)


def _add_hmac(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hmac",
        metavar="HMAC",
        help="the HMAC of the token, in base64; default: it is read from the terminal, from the first line "
        f"of stdin, or from the environment variable {_HMAC_VARIABLE}",
    )


def _read_hmac(options: argparse.Namespace) -> bytes:
    """Return the HMAC from `--hmac`, the environment or the terminal.

    Raises ConfigError if the HMAC is invalid.
    """
    text = read_secret(_HMAC_VARIABLE, "HMAC: ") if options.hmac is None else options.hmac
    try:
        if hmac := b64decode(text.strip(), validate=True):
            return hmac
    except binascii.Error:
        pass
    raise ConfigError(
        "--hmac", "[hidden]", "the HMAC of a token, in base64, as `kproto tokens describe` prints it"
    )


def _create(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        token = admin.create_delegation_token(
            renewers=options.renewer_principal,
            owner=options.owner_principal,
            max_lifetime_ms=options.max_life_time_period,
        )
    if not options.json:
        print(f"Created delegation token with tokenId : {token.token_id}")
    _print_tokens(options, [token])
    return 0


def _renew(options: argparse.Namespace) -> int:
    hmac = _read_hmac(options)
    with admin_client(options) as admin:
        expires_at = admin.renew_delegation_token(hmac, renew_period_ms=options.renew_time_period)
    _print_expiry(options, "renew", "renewed", expires_at)
    return 0


def _expire(options: argparse.Namespace) -> int:
    hmac = _read_hmac(options)
    if not options.execute:
        print("expire a delegation token")
        return say_not_executed("no token was changed")
    with admin_client(options) as admin:
        expires_at = admin.expire_delegation_token(hmac, expiry_period_ms=options.expiry_time_period)
    _print_expiry(options, "expire", "expired", expires_at)
    return 0


def _describe(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        tokens = admin.describe_delegation_token(options.owner_principal or None)
    if not options.json:
        print(f"Total number of tokens : {len(tokens)}")
    _print_tokens(options, tokens)
    return 0


def _print_expiry(options: argparse.Namespace, operation: str, done: str, expires_at: int) -> None:
    if options.json:
        print_json([{"done": done, "expiryTimestamp": expires_at}])
    else:
        print(f"Completed {operation} operation. New expiry date : {_kafka_time(expires_at)}")


def _print_tokens(options: argparse.Namespace, tokens: Sequence[DelegationToken]) -> None:
    if options.json:
        print_json(
            {
                "tokenId": token.token_id,
                "hmac": token.hmac_as_base64,
                "owner": token.owner,
                "tokenRequester": token.token_requester,
                "renewers": list(token.renewers),
                "issueTimestamp": token.issue_timestamp,
                "expiryTimestamp": token.expiry_timestamp,
                "maxTimestamp": token.max_timestamp,
            }
            for token in tokens
        )
        return
    print_table(
        _COLUMNS,
        [
            (
                token.token_id,
                token.hmac_as_base64,
                token.owner,
                token.token_requester,
                f"[{', '.join(token.renewers)}]",
                *map(_kafka_time, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)),
            )
            for token in tokens
        ],
    )


def _kafka_time(time_ms: int) -> str:
    """Return a time as Kafka's tool prints it (in local time), or in ms if it is after the year 9999."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
