"""Reads a Java client.properties file as options.

Rules:

* Commands (`--command-config`), `Admin` and Spark use only the security properties. `client_options` reads
  all other properties of consumers and producers.

* An unsupported security property raises ConfigError. If a trust store, for example, were ignored, the
  fault would be noticed only when a connection fails.

* Stores in the formats PEM and PKCS12 are read. PKCS12 needs the extra `security`. Java's own format JKS is
  not supported.

* JAAS configurations are read for PLAIN, SCRAM and OAUTHBEARER.

* No error shows the value of a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, overload

from kproto.errors import ConfigError, KprotoError, MissingExtra

from ..other_options import option_hint
from .assertions import CLIENT_CREDENTIALS
from .jaas import read_jaas
from .option_names import NAMES, PREFIXES, SecurityConfig, mask_secret
from .secret import HIDDEN
from .stores import is_pkcs12

if TYPE_CHECKING:
    from ..consumer_options import ConsumerConfig
    from ..producer_options import ProducerConfig

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REGISTRY_PREFIXES: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")
_WHITESPACE: Final = "".join(map(chr, range(0x21)))  # The characters that Java's String.trim removes.
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}
# The prefixes of JAAS options that Java supports and this library does not, with the reason.
_UNSUPPORTED_JAAS: Final = {
    "ssl.": "a token endpoint is verified with the system's authorities, or with your ssl_context",
    "unsecuredLoginStringClaim_": "unsigned tokens need a sasl_oauth_token_provider",
}
# The options whose value in a file is true or false.
_FLAGGED: Final = (
    "ssl_check_hostname",
    "sasl_oauthbearer_header_urlencode",
    "sasl_token_auth",
    "sasl_oauthbearer_assertion_claim_jti_include",
)
# The options whose value in a file is a number.
_NUMBERED: Final = (
    "sasl_oauthbearer_assertion_claim_exp_seconds",
    "sasl_oauthbearer_assertion_claim_nbf_seconds",
)
# All options that a file can contain. A file cannot contain an option whose value is an object.
_TEXTS: Final = NAMES - {"ssl_context", "sasl_extensions"}
# Java's default class sends a client assertion only if one of these properties is set.
_SENT_BY_DEFAULT: Final = ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss")
_FLAGS: Final[Mapping[str, bool]] = {"true": True, "false": False}


@overload
def client_properties(path: str | Path, client: Literal["consumer"] = ...) -> ConsumerConfig: ...
@overload
def client_properties(path: str | Path, client: Literal["producer"]) -> ProducerConfig: ...
@overload
def client_properties(path: str | Path, client: Literal["admin"]) -> SecurityConfig: ...
def client_properties(path: str | Path, client: str = "consumer") -> Any:
    """Read a Java properties file, and return options for a "consumer", a "producer" or an "admin" client.

    The result contains the properties for which this library has an option. For an admin client, it contains
    only the security properties among them.

    Three kinds of properties are ignored, and logged in one line: properties of the other kind of client,
    properties that exist only in Java (serializers, metrics), and bootstrap.servers, the client's first
    argument.

    An unsupported property that would change the behaviour raises ConfigError. So does an unreadable file.
    """
    if client not in ("consumer", "producer", "admin"):
        raise ConfigError("client", client, "allowed: 'consumer', 'producer', 'admin'")
    try:
        return _options(path, client)
    # Raise the error again from this function, because a traceback with the inner frames would contain
    # passwords.
    except KprotoError as error:
        if error.__suppress_context__:
            error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904


def _options(path: str | Path, client: str) -> Any:
    properties = _read(path)
    secured = from_java(properties)
    if client == "admin":
        return secured
    from .client_options import options_of

    return {**options_of(properties, client, str(path)), **secured}


def about_security(path: str | Path) -> dict[str, str]:
    """Read a file, and return its security properties under Java's names.

    Raise ConfigError if the file is unreadable.
    """
    return {name: value for name, value in _read(path).items() if name.startswith(PREFIXES)}


def about_registry(path: str | Path) -> dict[str, str]:
    """Read a file, and return its schema registry properties.

    Raise ConfigError if the file is unreadable.

    Confluent's tools accept login properties with and without the prefix `schema.registry.`. They are
    returned without this prefix.
    """
    selected = {name: value for name, value in _read(path).items() if name.startswith(_REGISTRY_PREFIXES)}
    return {
        name if name == "schema.registry.url" else name.removeprefix("schema.registry."): value
        for name, value in sorted(selected.items())
    }


def _read(path: Any) -> dict[str, str]:
    allowed = "a Java client.properties file"
    if not isinstance(path, str | Path):
        raise ConfigError("path", HIDDEN, f"the path of {allowed}, as a string or a pathlib.Path")
    name = str(cast("object", path))
    if any(sign in name for sign in ("=", ": ", "\n", "\0")) and not os.path.exists(name):
        raise ConfigError("path", HIDDEN, f"the path of {allowed}, not its content")
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError("path", name, f"{allowed} ({why})") from None
    properties = read_properties(text)
    if providers := properties.get("config.providers"):
        raise ConfigError(
            "config.providers",
            providers,
            "leave it empty, because ${...} is not resolved; write the value itself",
        )
    return properties


def from_java(properties: Mapping[str, str]) -> SecurityConfig:
    """Convert security properties from Java's names to this library's options."""
    settings = {name: _trimmed(name, text) for name, text in properties.items() if name.startswith(PREFIXES)}
    remaining = {name: value for name, value in settings.items() if value}
    options: dict[str, Any] = {}
    for java, (ours, read) in _RENAMED.items():
        if java in remaining:
            options[ours] = read(java, remaining.pop(java))
    # An empty value disables the check of the host name.
    if "ssl.endpoint.identification.algorithm" in settings:
        check = settings["ssl.endpoint.identification.algorithm"].lower()
        remaining.pop("ssl.endpoint.identification.algorithm", None)
        if check not in ("", "https"):
            raise ConfigError("ssl.endpoint.identification.algorithm", check, "https, or empty for no check")
        if not check:
            options["ssl_check_hostname"] = False
    _stores(remaining, options)
    _jaas(remaining, options)
    _retriever(remaining, options)
    protocols = remaining.pop("ssl.enabled.protocols", "")
    if protocols and "TLSv1.2" not in protocols:
        if "TLSv1.3" not in protocols:
            raise ConfigError("ssl.enabled.protocols", protocols, "TLSv1.2, TLSv1.3, or both")
        options["ssl_min_version"] = "TLSv1.3"
    for name in remaining:
        plain = name.replace(".", "_")
        if plain in NAMES:  # The property is an option of this library, with dots instead of underscores.
            options[plain] = _value(plain, remaining[name])
        elif name not in _IGNORED:
            allowed = _as_written(option_hint(plain, "an admin client") or "this client has no such option")
            raise ConfigError(name, mask_secret(name, remaining[name]), allowed)
    if str(options.get("sasl_mechanism", "")).upper() != "GSSAPI":
        options.pop("sasl_kerberos_service_name", None)  # Java uses the property only with GSSAPI.
    if not str(options.get("security_protocol", "PLAINTEXT")).upper().endswith("SSL"):
        options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return cast("SecurityConfig", options)


def _value(option: str, text: str) -> Any:
    """Convert an option's text. Invalid text is returned unchanged, and the option's check rejects it."""
    if option in _FLAGGED:
        return _FLAGS.get(text.lower(), text)
    return int(text) if option in _NUMBERED and text.isascii() and text.isdigit() else text


def _retriever(settings: dict[str, str], options: dict[str, Any]) -> None:
    """Set the grant type that corresponds to the class in sasl.oauthbearer.jwt.retriever.class.

    Java's default class sends a client assertion only if the properties name a file with the assertion, or
    its issuer (Java's ClientCredentialsRequestFormatterFactory). Without these two, the class ignores the
    other assertion properties.
    """
    name = "sasl.oauthbearer.jwt.retriever.class"
    retriever = settings.pop(name, "")
    short = retriever.rpartition(".")[2]
    with_credentials = short in ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
    if any(key.startswith("sasl.oauthbearer.assertion.") for key in settings):
        if "sasl.oauthbearer.grant.type" in settings:
            return  # This library's option, which Java does not have.
        if with_credentials and any(key in settings for key in _SENT_BY_DEFAULT):
            options["sasl_oauthbearer_grant_type"] = CLIENT_CREDENTIALS
            options.pop("sasl_oauthbearer_client_secret", None)  # As in Java, the assertion replaces it.
            settings.pop("sasl.oauthbearer.header.urlencode", None)
        elif short != "JwtBearerJwtRetriever":
            allowed = (
                "a JwtBearerJwtRetriever together with sasl.oauthbearer.assertion properties, or set "
                "sasl.oauthbearer.assertion.claim.iss, too"
            )
            raise ConfigError(name, retriever or None, allowed)
    elif not with_credentials:
        allowed = (
            "a DefaultJwtRetriever or ClientCredentialsJwtRetriever, a JwtBearerJwtRetriever with "
            "sasl.oauthbearer.assertion properties, or sasl.oauth.token.provider instead"
        )
        raise ConfigError(name, retriever, allowed)


def _trimmed(name: str, text: str) -> str:
    """Trim a value as Java's ConfigDef does, passwords included.

    The values of options that Java does not have are not trimmed.
    """
    ours = name.replace(".", "_") in NAMES and name not in _RENAMED
    return text if ours else text.strip(_WHITESPACE)


def _as_written(hint: str) -> str:
    """Return an error's advice, with the option names spelled with dots as in a properties file."""
    return re.sub(r"\w+", lambda word: word[0].replace("_", ".") if word[0] in _TEXTS else word[0], hint)


def _as_is(name: str, value: str) -> str:
    return value


_RENAMED: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "security.protocol": ("security_protocol", _as_is),
    "sasl.mechanism": ("sasl_mechanism", _as_is),
    "sasl.oauthbearer.token.endpoint.url": ("sasl_oauthbearer_token_endpoint_url", _as_is),
    "sasl.oauthbearer.client.credentials.client.id": ("sasl_oauthbearer_client_id", _as_is),
    "sasl.oauthbearer.client.credentials.client.secret": ("sasl_oauthbearer_client_secret", _as_is),
    "sasl.oauthbearer.scope": ("sasl_oauthbearer_scope", _as_is),
}
# Properties that are ignored because they do not influence authentication: the JVM's providers, and the
# timing of Java's login thread.
_IGNORED: Final = frozenset(
    {
        "ssl.protocol",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.min.time.before.relogin",
        "security.providers",
    }
)


def _stores(settings: dict[str, str], options: dict[str, Any]) -> None:
    trust = settings.pop("ssl.truststore.location", None)
    kind = _kind(trust, settings.pop("ssl.truststore.type", None))
    password = settings.pop("ssl.truststore.password", None)
    pem = settings.pop("ssl.truststore.certificates", None)
    if pem is not None:
        options["ssl_cafile"] = pem
    elif trust is not None:
        _readable("ssl.truststore", trust, kind)
        options["ssl_cafile"] = _trusted(trust, password) if kind == "PKCS12" else trust
    own = settings.pop("ssl.keystore.location", None)
    kind = _kind(own, settings.pop("ssl.keystore.type", None))
    store_password = settings.pop("ssl.keystore.password", None)
    key_password = settings.pop("ssl.key.password", None)
    chain, key = settings.pop("ssl.keystore.certificate.chain", None), settings.pop("ssl.keystore.key", None)
    if own is not None:
        _readable("ssl.keystore", own, kind)
    if chain is not None or own is not None:
        options["ssl_certfile"] = chain if chain is not None else own
        if key is not None:
            options["ssl_keyfile"] = key
        wanted = store_password if own is not None and kind == "PKCS12" else key_password or store_password
        if wanted is not None:
            options["ssl_password"] = wanted


def _kind(path: str | None, declared: str | None) -> str:
    """Return a store's format: the declared one, else that of the file extension, else Java's default.

    Java also reads a PKCS12 file that is declared as JKS, the default format. So a file declared as JKS
    counts as PKCS12 if its content is PKCS12.
    """
    names = {"PKCS12": (".p12", ".pfx"), "PEM": (".pem", ".crt", ".cer", ".key")}
    if declared is None:
        wanted = "PEM" if path is None else "JKS"
        declared = next(
            (kind for kind, ends in names.items() if path and path.lower().endswith(ends)), wanted
        )
    if declared.upper() == "JKS" and path is not None and is_pkcs12(path):
        return "PKCS12"
    return declared.upper()


def _readable(store: str, path: str, kind: str) -> None:
    if kind not in ("PEM", "PKCS12"):
        if not os.path.isfile(path):
            raise ConfigError(
                f"{store}.location",
                path,
                "this file does not exist; give the path of an existing PEM or PKCS12 file",
            )
        raise ConfigError(
            f"{store}.type",
            kind,
            f"PEM or PKCS12: convert {path} with `keytool -importkeystore -deststoretype PKCS12 "
            "-destkeystore FILE.p12 -srckeystore ...`",
        )


def _trusted(path: str, password: str | None) -> str:
    """Read a PKCS12 trust store, and return its certificates as PEM text."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
    except ImportError:
        raise MissingExtra("a PKCS12 trust store", "cryptography", "security") from None
    try:
        store = pkcs12.load_pkcs12(Path(path).read_bytes(), None if password is None else password.encode())
    except OSError as error:
        raise ConfigError("ssl.truststore.location", path, f"a file ({error.strerror})") from None
    except ValueError:
        allowed = "a PKCS12 file; ssl.truststore.password must be its password"
        raise ConfigError("ssl.truststore.location", path, allowed) from None
    held = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    if not held:
        allowed = "a PKCS12 file with certificates; it has none"
        raise ConfigError("ssl.truststore.location", path, allowed)
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in held).decode()


def _jaas(settings: dict[str, str], result: dict[str, Any]) -> None:
    line = settings.pop("sasl.jaas.config", None)
    if line is None:
        return
    wanted = result.get("sasl_mechanism")
    if wanted is not None and not any(str(wanted).upper() in known for known in _MODULES.values()):
        return  # The mechanism does not exist. The check of sasl_mechanism reports it later.
    module, options = read_jaas(line)
    mechanisms = next(
        (known for name, known in _MODULES.items() if module.endswith(f".{name}") or module == name), None
    )
    if mechanisms is None:
        allowed = f"one of {', '.join(_MODULES)}"
        raise ConfigError("sasl.jaas.config", module, allowed)
    mechanism = str(result.get("sasl_mechanism", mechanisms[0])).upper()
    if mechanism not in mechanisms:
        allowed = f"a module for sasl.mechanism {mechanism}"
        raise ConfigError("sasl.jaas.config", module, allowed)
    for name, text in options.items():
        why = next((why for begins, why in _UNSUPPORTED_JAAS.items() if name.startswith(begins)), None)
        if why is not None and text.lower() != "false":
            raise ConfigError("sasl.jaas.config", module, f"without {name}: {why}")
    result.setdefault("sasl_mechanism", mechanism)
    if mechanism == "OAUTHBEARER":
        for jaas, ours in (
            ("clientId", "sasl_oauthbearer_client_id"),
            ("clientSecret", "sasl_oauthbearer_client_secret"),
            ("scope", "sasl_oauthbearer_scope"),
        ):
            if jaas in options:
                result.setdefault(ours, options[jaas])
        extensions = {name[10:]: value for name, value in options.items() if name.startswith("extension_")}
        if extensions:
            result["sasl_extensions"] = extensions
        return
    if mechanism == "GSSAPI":
        for jaas, ours in (
            ("serviceName", "sasl_kerberos_service_name"),
            ("principal", "sasl_kerberos_principal"),
            ("keyTab", "sasl_kerberos_keytab"),
        ):
            if jaas in options:
                result.setdefault(ours, options[jaas])
        return
    for jaas, ours in (("username", "sasl_username"), ("password", "sasl_password")):
        if jaas not in options:
            raise ConfigError("sasl.jaas.config", module, f'with {jaas}="..." after the module\'s name')
        result[ours] = options[jaas]
    # Of Java's login modules, only ScramLoginModule reads `tokenauth`.
    if mechanism.startswith("SCRAM") and options.get("tokenauth", "").lower() == "true":
        result["sasl_token_auth"] = True


def read_properties(text: str) -> dict[str, str]:
    r"""Parse Java's properties.

    A line may be a comment, or may end with a backslash to continue on the next line. The name ends at `=`,
    `:` or whitespace.

    A \u that is not followed by four hexadecimal digits raises ConfigError, as in Java.
    """
    properties: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line, more = line[:-1], next(lines, "").lstrip(" \t\f")
            if not line and more[:1] in ("", "#", "!"):
                break  # The line is continued, but the next line is empty or a comment.
            line += more
        if not line:
            continue
        at = 0
        while at < len(line) and line[at] not in "=: \t\f":
            at += 2 if line[at] == "\\" else 1
        value = line[at:].lstrip(" \t\f")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t\f")
        name, meant = _unescaped(line[:at]), _unescaped(value)
        if name is None or meant is None:
            allowed = r"\u with four hexadecimal digits, and \\ for a backslash"
            raise ConfigError(name or HIDDEN, HIDDEN, allowed)
        properties[name] = meant
    return properties


def _unescaped(text: str) -> str | None:
    r"""Replace Java's escape sequences. Return None for a \u that is not followed by four hex digits."""
    if "\\" not in text:
        return text
    if any(escape[2] == "u" for escape in _ESCAPE.finditer(text)):
        return None

    def character(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        return _LETTERS.get(escape[2], escape[2])

    # Java writes a character beyond U+FFFF as two surrogates. They are joined into one character.
    return (
        _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    )
