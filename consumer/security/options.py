"""Checks the options of TLS and SASL before a client connects. They have Kafka's names in snake_case.

Rules:

* An error never shows a secret, or the value of an option whose name suggests a secret.

* Files and certificates are read when a client is created. So an invalid file raises ConfigError, and does
  not cause a failed handshake later.

* Option names of Java, librdkafka and other Python clients are rejected. The error contains this library's
  name for the option.

* Host names and certificates are verified. `ssl_check_hostname=False` disables the verification of host
  names. If the application passes its own `ssl_context`, only the context determines what is verified.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from kproto.errors import ConfigError
from kproto.security.exchange import SaslClient
from kproto.security.oauthbearer import OAuthBearerClient, wrong_extension
from kproto.security.plain import PlainClient
from kproto.security.scram import HASHES, ScramClient, salted

from .assertions import (
    ALGORITHMS,
    CLIENT_CREDENTIALS,
    GRANT_TYPES,
    JWT_BEARER,
    PREFIX,
    AssertionEndpoint,
    assertion_of,
)
from .kerberos import Kerberos, KerberosLogin, KerberosSource
from .option_names import PROTOCOLS, mask_secret
from .secret import HIDDEN, PROVIDER_NAME, Secret
from .stores import is_pem
from .tls import YOURS, Tls, context
from .tokens import Endpoint, Token, TokenSource

MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER", "GSSAPI")
_ASSERTION_FILE_OPTIONS: Final = tuple(
    f"{PREFIX}{name}" for name in ("file", "private_key_file", "template_file")
)
_FILE_OPTIONS: Final = (
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "sasl_kerberos_keytab",
    *_ASSERTION_FILE_OPTIONS,
)
# Mechanisms that are not supported, with the replacement.
_MECHANISM_HINTS: Final = {
    "AWS_MSK_IAM": (
        "use OAUTHBEARER, and consumer.security.msk_iam.MskIamTokenProvider as sasl_oauth_token_provider"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security settings of one client.

    The repr shows no secret. Settings with a secret cannot be pickled.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: Secret | None = None
    extensions: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Whether the user name and password are the id and HMAC of a delegation token (KIP-48).
    by_token: bool = False
    tls: Tls | None = None
    tokens: TokenSource | None = None
    kerberos: Kerberos | None = None
    # (Salt, number of iterations) -> salted password, at most one entry, from the last SCRAM login.
    # Computing the salted password takes most of the time of a login.
    _salted_passwords: dict[tuple[bytes, int], bytes] = field(
        default_factory=dict[tuple[bytes, int], bytes], repr=False, compare=False
    )

    def without_secrets(self, words: str) -> str:
        """Return a broker's message with secrets masked, because the message may repeat the credentials."""
        for secret in (self.password, None if self.tokens is None else self.tokens.last):
            if secret is not None and secret.reveal() != self.username:
                words = words.replace(secret.reveal(), HIDDEN)
        return words

    @property
    def sasl(self) -> bool:
        """Whether this client authenticates with SASL."""
        return self.mechanism is not None

    @property
    def needs_token(self) -> bool:
        """Whether a token or a Kerberos ticket must be requested before each login."""
        return self.tokens is not None or self.kerberos is not None

    def token_source(self, host: str) -> TokenSource | KerberosSource:
        """Return the source of tokens or, with Kerberos, of the credentials for the broker `host`."""
        if self.kerberos is not None:
            return KerberosSource(self.kerberos, host)
        assert self.tokens is not None
        return self.tokens

    @property
    def user(self) -> str:
        """The user's name, or "the token", for error messages."""
        if self.kerberos is not None:
            return f"principal {self.kerberos.principal!r}" if self.kerberos.principal else "the ticket"
        return f"user {self.username!r}" if self.username else "the token"

    def likely_cause(self) -> str:
        """Return the likely reason why a broker rejected the credentials, for an error message."""
        if self.by_token:
            return "is this the id and the HMAC of a delegation token that has not expired?"
        if self.tokens is not None:
            return "has it expired (do the clocks agree?), and is it issued for this cluster?"
        if self.kerberos is not None:
            return "does the broker have the key of this service, and do the clocks agree?"
        name = self.username or ""
        if self.mechanism in HASHES and not name.isascii():
            return "Kafka accepts only ASCII user names for SCRAM"
        password = "" if self.password is None else self.password.reveal()
        for option, value in (("sasl_username", name), ("sasl_password", password)):
            if value != value.strip():
                has_leading_space = value != value.lstrip()
                verb, character = ("begins", value[0]) if has_leading_space else ("ends", value[-1])
                character_name = "a line end" if character in "\r\n" else "a space"
                return f"{option} {verb} with {character_name}; is that intended?"
        return "are sasl_username and sasl_password right?"

    def exchange(self, token: Token | KerberosLogin | None = None) -> SaslClient:
        """Return a new SASL exchange. OAUTHBEARER requires a token, and GSSAPI a login that has begun."""
        assert self.mechanism is not None
        if isinstance(token, KerberosLogin):
            return token
        if self.mechanism == "OAUTHBEARER":
            assert token is not None
            return OAuthBearerClient(token.value.reveal(), {**self.extensions, **token.extensions})
        assert self.username is not None
        assert self.password is not None
        if self.mechanism == "PLAIN":
            return PlainClient(self.username, self.password.reveal())
        nonce, password = secrets.token_urlsafe(24), self.password.reveal()
        return ScramClient(
            self.mechanism,
            self.username,
            password,
            nonce,
            salt_password=self._salt_password,
            by_token=self.by_token,
        )

    def _salt_password(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password of SCRAM, and keep it for the next login."""
        salted_password = self._salted_passwords.get((salt, iterations))
        if salted_password is None:
            assert self.mechanism is not None
            assert self.password is not None
            salted_password = salted(self.mechanism, self.password.reveal(), salt, iterations)
            self._salted_passwords.clear()
            self._salted_passwords[salt, iterations] = salted_password
        return salted_password

    def __reduce__(self) -> Any:
        if self == PLAINTEXT:
            return (_plaintext, ())
        raise TypeError("security settings hold secrets and can't be pickled; pass the options instead")


PLAINTEXT: Final = Security()


def _plaintext() -> Security:
    """Return `PLAINTEXT`. A pickle of these settings refers to this function."""
    return PLAINTEXT


def security_options(options: Mapping[str, Any]) -> Security:
    """Check the options of `SecurityConfig`, and return the settings.

    Raise ConfigError for the first invalid option.
    """
    values = {name: _path_text(name, value) for name, value in options.items() if value is not None}
    for name, value in values.items():
        _CHECKS[name](name, value)
    protocol = str(values.get("security_protocol", "PLAINTEXT")).upper()
    with_tls, with_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for name in values:
        if name.startswith("ssl_") and not with_tls:
            allowed = f"only with security_protocol SSL or SASL_SSL; it is {protocol}"
            raise _option_error(name, values[name], allowed)
        if name.startswith("sasl_") and not with_sasl:
            allowed = f"only with security_protocol SASL_SSL or SASL_PLAINTEXT; it is {protocol}"
            raise _option_error(name, values[name], allowed)
    sasl = _sasl_settings(values) if with_sasl else {}
    return Security(protocol=protocol, tls=_tls_settings(values) if with_tls else None, **sasl)


def _path_text(name: str, value: Any) -> Any:
    """Convert a Path to a string if the option names a file. Return any other `value` unchanged."""
    return str(cast("object", value)) if name in _FILE_OPTIONS and isinstance(value, Path) else value


def _option_error(name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(name, mask_secret(name, value), allowed)


def _tls_settings(values: Mapping[str, Any]) -> Tls:
    """Return the TLS settings: from `ssl_context` if it is set, else from the other options."""
    own_context = values.get("ssl_context")
    if own_context is not None:
        for name in values:
            if name.startswith("ssl_") and name != "ssl_context":
                raise _option_error(name, values[name], "ssl_context is also set: configure it there")
        return Tls(own_context, YOURS, YOURS)
    if "ssl_keyfile" in values and "ssl_certfile" not in values:
        raise _option_error("ssl_keyfile", values["ssl_keyfile"], "it needs ssl_certfile")
    cafile = values.get("ssl_cafile")
    return Tls(
        context(
            cafile=cafile,
            certfile=values.get("ssl_certfile"),
            keyfile=values.get("ssl_keyfile"),
            password=values.get("ssl_password"),
            check_hostname=values.get("ssl_check_hostname", True),
            min_version=values.get("ssl_min_version", "TLSv1.2"),
        ),
        *(_describe_source(values, name) for name in ("ssl_cafile", "ssl_certfile")),
    )


def _describe_source(values: Mapping[str, Any], name: str) -> str | None:
    """Describe an option for an error message, as `name='path'` or `name=PEM text`."""
    value = values.get(name)
    return None if value is None else f"{name}={'PEM text' if is_pem(value) else value!r}"


def _sasl_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Security` for the mechanism; reject options of other mechanisms."""
    mechanism = values.get("sasl_mechanism")
    if mechanism is None:
        allowed = f"security_protocol {values['security_protocol']} needs one of {', '.join(MECHANISMS)}"
        raise ConfigError("sasl_mechanism", None, allowed)
    mechanism = str(mechanism).upper()
    extensions = dict(values.get("sasl_extensions", {}))
    oauth_options = [name for name in values if name.startswith(("sasl_oauth", "sasl_extensions"))]
    kerberos_options = [name for name in values if name.startswith("sasl_kerberos_")]
    by_token = values.get("sasl_token_auth", False)
    if by_token and mechanism not in HASHES:
        raise _option_error("sasl_token_auth", by_token, f"only with SCRAM; sasl_mechanism is {mechanism}")
    if mechanism == "GSSAPI":
        for name in (*oauth_options, "sasl_username", "sasl_password"):
            if name in values:
                raise _option_error(name, values[name], "sasl_mechanism GSSAPI uses Kerberos instead")
        return {"mechanism": mechanism, "kerberos": _kerberos_settings(values)}
    if kerberos_options:
        name = kerberos_options[0]
        raise _option_error(name, values[name], f"only with sasl_mechanism GSSAPI; it is {mechanism}")
    if mechanism == "OAUTHBEARER":
        for name in ("sasl_username", "sasl_password"):
            if name in values:
                raise _option_error(name, values[name], "sasl_mechanism OAUTHBEARER sends a token instead")
        return {"mechanism": mechanism, "tokens": _token_source(values), "extensions": extensions}
    if oauth_options:
        name = oauth_options[0]
        raise _option_error(name, values[name], f"only with sasl_mechanism OAUTHBEARER; it is {mechanism}")
    for name in ("sasl_username", "sasl_password"):
        if not values.get(name):
            allowed = f"sasl_mechanism {mechanism} needs a string that is not empty"
            raise _option_error(name, values.get(name), allowed)
    return {
        "mechanism": mechanism,
        "username": values["sasl_username"],
        "password": Secret(values["sasl_password"]),
        "by_token": by_token,
    }


def _kerberos_settings(values: Mapping[str, Any]) -> Kerberos:
    keytab = values.get("sasl_kerberos_keytab")
    if keytab is not None and not Path(keytab).is_file():
        raise ConfigError("sasl_kerberos_keytab", keytab, "the path of a keytab; this file does not exist")
    return Kerberos(
        values.get("sasl_kerberos_service_name", "kafka"),
        values.get("sasl_kerberos_domain_name"),
        values.get("sasl_kerberos_principal"),
        keytab,
    )


def _token_source(values: Mapping[str, Any]) -> TokenSource:
    """Return the source of OAUTHBEARER tokens: a provider, or an endpoint with an assertion or a secret."""
    provider = values.get("sasl_oauth_token_provider")
    url = values.get("sasl_oauthbearer_token_endpoint_url")
    if (provider is None) == (url is None):
        allowed = "OAUTHBEARER needs either this or sasl_oauthbearer_token_endpoint_url"
        raise ConfigError("sasl_oauth_token_provider", provider, allowed)
    if provider is not None:
        for name in values:
            if name.startswith("sasl_oauthbearer_"):
                allowed = "sasl_oauth_token_provider is also set: remove one of them"
                raise _option_error(name, values[name], allowed)
        return TokenSource(_import_provider(provider) if isinstance(provider, str) else provider)
    scope, tls_context = values.get("sasl_oauthbearer_scope"), values.get("ssl_context")
    grant_type = values.get(_GRANT_TYPE)
    if any(name.startswith(PREFIX) for name in values):
        grant_type = grant_type or JWT_BEARER
        # With client credentials, a client id may be set, because some token endpoints need it (RFC 7521,
        # 4.2).
        replaced = () if grant_type == CLIENT_CREDENTIALS else (_CLIENT_ID,)
        for name in (*replaced, _CLIENT_SECRET, _HEADER_URLENCODE):
            if name in values:
                allowed = f"options that begin with {PREFIX} are also set, and an assertion replaces it"
                raise _option_error(name, values[name], allowed)
        client_id = values.get(_CLIENT_ID)
        assertion = assertion_of(values)
        return TokenSource(AssertionEndpoint(str(url), assertion, scope, tls_context, grant_type, client_id))
    if grant_type == JWT_BEARER:
        raise _option_error(_GRANT_TYPE, grant_type, f"only together with options that begin with {PREFIX}")
    for name in (_CLIENT_ID, _CLIENT_SECRET):
        if not values.get(name):
            raise _option_error(name, values.get(name), "sasl_oauthbearer_token_endpoint_url needs it")
    endpoint = Endpoint(
        str(url),
        values[_CLIENT_ID],
        Secret(values[_CLIENT_SECRET]),
        scope,
        tls_context,
        encodes_header=values.get(_HEADER_URLENCODE, False),
    )
    return TokenSource(endpoint)


_GRANT_TYPE: Final = "sasl_oauthbearer_grant_type"
_CLIENT_ID: Final = "sasl_oauthbearer_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_secret"
_HEADER_URLENCODE: Final = "sasl_oauthbearer_header_urlencode"


def _import_provider(name: str) -> Callable[[], Any]:
    """Import the function that MODULE:FUNCTION names. Raises ConfigError if it cannot be imported."""
    option, (module, _, function) = "sasl_oauth_token_provider", name.partition(":")
    try:
        target: object = import_module(module)
        for part in function.split("."):
            target = getattr(target, part)
    except Exception as error:
        # Only the text of these two exceptions is shown, because the text of others may contain secrets.
        why = str(error) if isinstance(error, ModuleNotFoundError | AttributeError) else type(error).__name__
        allowed = f"MODULE:FUNCTION that can be imported in this process ({why})"
        raise ConfigError(option, name, allowed) from None
    if not callable(target):
        raise ConfigError(option, name, f"MODULE:FUNCTION; this name belongs to a {type(target).__name__}")
    return cast("Callable[[], Any]", target)


# ---- checks of single options

_KERBEROS_NAMES: Final = ("service_name", "domain_name", "principal", "keytab")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise _option_error(name, value, "a string that is not empty")
    if is_pem(value) or name not in _FILE_OPTIONS:  # The name of a file may contain bytes that are not UTF-8.
        try:
            value.encode()
        except UnicodeEncodeError:
            allowed = "a string that UTF-8 can encode; this one has bytes that were not UTF-8, or a surrogate"
            raise _option_error(name, value, allowed) from None


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _option_error(name, value, "True or False")


def _check_protocol(name: str, value: Any) -> None:
    if not isinstance(value, str) or value.upper() not in PROTOCOLS:
        raise ConfigError(name, value, f"allowed: {', '.join(PROTOCOLS)}")


def _check_mechanism(name: str, value: Any) -> None:
    if not isinstance(value, str) or value.upper() not in MECHANISMS:
        why = _MECHANISM_HINTS.get(value.upper(), "") if isinstance(value, str) else ""
        raise ConfigError(name, value, f"allowed: {', '.join(MECHANISMS)}" + (f"; {why}" if why else ""))


def _check_min_version(name: str, value: Any) -> None:
    if value not in ("TLSv1.2", "TLSv1.3"):
        raise ConfigError(
            name, value, "allowed: 'TLSv1.2', 'TLSv1.3'; older versions need your own ssl_context"
        )


def _check_algorithm(name: str, value: Any) -> None:
    if value not in ALGORITHMS:
        raise _option_error(name, value, f"allowed: {', '.join(ALGORITHMS)}")


def _check_grant_type(name: str, value: Any) -> None:
    if value not in GRANT_TYPES:
        raise _option_error(name, value, f"allowed: {', '.join(GRANT_TYPES)}")


def _check_seconds(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _option_error(name, value, "a whole number of seconds, at least 0")


def _check_context(name: str, value: Any) -> None:
    if not isinstance(value, ssl.SSLContext):
        raise ConfigError(name, value, "an ssl.SSLContext")
    if value.protocol == ssl.PROTOCOL_TLS_SERVER:
        allowed = (
            "a context for clients, as ssl.create_default_context() returns; this one is for servers "
            "(CLIENT_AUTH)"
        )
        raise ConfigError(name, value, allowed)


def _check_provider(name: str, value: Any) -> None:
    if not callable(value) and not (isinstance(value, str) and PROVIDER_NAME.fullmatch(value)):
        raise ConfigError(name, HIDDEN, "a function that returns a token, or its name as MODULE:FUNCTION")


def _check_url(name: str, value: Any) -> None:
    allowed = "an address such as https://login.example.com/oauth2/token"
    if isinstance(value, str) and "@" in value:
        allowed += ", without a password: that is sasl_oauthbearer_client_secret"
        raise ConfigError(name, HIDDEN, allowed)
    # kproto.http is imported in the function, because few clients need it.
    from kproto.http import is_http_address

    if not isinstance(value, str) or not is_http_address(value):
        raise ConfigError(name, value, allowed)


def _check_extensions(name: str, value: Any) -> None:
    allowed = "a mapping of strings to strings"
    if not isinstance(value, Mapping):
        raise ConfigError(name, value, allowed)
    for key, text in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ConfigError(name, key, allowed)
        if why := wrong_extension(key, text):
            raise ConfigError(name, key, why)


_CHECKS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "security_protocol": _check_protocol,
    "ssl_cafile": _check_text,
    "ssl_certfile": _check_text,
    "ssl_keyfile": _check_text,
    "ssl_password": _check_text,
    "ssl_check_hostname": _check_flag,
    "ssl_min_version": _check_min_version,
    "ssl_context": _check_context,
    "sasl_mechanism": _check_mechanism,
    "sasl_username": _check_text,
    "sasl_password": _check_text,
    "sasl_token_auth": _check_flag,
    "sasl_oauth_token_provider": _check_provider,
    "sasl_oauthbearer_token_endpoint_url": _check_url,
    "sasl_oauthbearer_client_id": _check_text,
    "sasl_oauthbearer_client_secret": _check_text,
    "sasl_oauthbearer_scope": _check_text,
    "sasl_oauthbearer_header_urlencode": _check_flag,
    "sasl_oauthbearer_grant_type": _check_grant_type,
    "sasl_extensions": _check_extensions,
    **dict.fromkeys((f"sasl_kerberos_{name}" for name in _KERBEROS_NAMES), _check_text),
    f"{PREFIX}algorithm": _check_algorithm,
    f"{PREFIX}claim_exp_seconds": _check_seconds,
    f"{PREFIX}claim_nbf_seconds": _check_seconds,
    f"{PREFIX}claim_jti_include": _check_flag,
    **dict.fromkeys(
        [
            *_ASSERTION_FILE_OPTIONS,
            *(
                f"{PREFIX}{name}"
                for name in ("claim_aud", "claim_iss", "claim_sub", "private_key_passphrase")
            ),
        ],
        _check_text,
    ),
}
