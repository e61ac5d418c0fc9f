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
from collections.abc import Mapping
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
_ESCAPED_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REGISTRY_PREFIXES: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")
_WHITESPACE: Final = "".join(map(chr, range(0x21)))  # The characters that Java's String.trim removes.
# Each of Java's login modules -> its SASL mechanisms, the default mechanism first.
_LOGIN_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}
# Mechanism -> JAAS option -> this library's option.
_OPTIONAL_JAAS: Final[Mapping[str, Mapping[str, str]]] = {
    "OAUTHBEARER": {
        "clientId": "sasl_oauthbearer_client_id",
        "clientSecret": "sasl_oauthbearer_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
    "GSSAPI": {
        "serviceName": "sasl_kerberos_service_name",
        "principal": "sasl_kerberos_principal",
        "keyTab": "sasl_kerberos_keytab",
    },
}
# The prefixes of JAAS options that Java supports and this library does not, with the reason.
_UNSUPPORTED_JAAS: Final = {
    "ssl.": "a token endpoint is verified with the system's authorities, or with your ssl_context",
    "unsecuredLoginStringClaim_": "unsigned tokens need a sasl_oauth_token_provider",
}
# The options whose value in a file is true or false.
_FLAG_OPTIONS: Final = (
    "ssl_check_hostname",
    "sasl_oauthbearer_header_urlencode",
    "sasl_token_auth",
    "sasl_oauthbearer_assertion_claim_jti_include",
)
# The options whose value in a file is a number.
_NUMBER_OPTIONS: Final = (
    "sasl_oauthbearer_assertion_claim_exp_seconds",
    "sasl_oauthbearer_assertion_claim_nbf_seconds",
)
# All options that a file can contain. A file cannot contain an option whose value is an object.
_OPTIONS_IN_FILES: Final = NAMES - {"ssl_context", "sasl_extensions"}
# Java's default class sends a client assertion only if one of these properties is set.
_DEFAULT_ASSERTION_PROPERTIES: Final = (
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.claim.iss",
)
_FLAG_VALUES: Final[Mapping[str, bool]] = {"true": True, "false": False}


@overload
def client_properties(path: str | Path, client: Literal["consumer"] = ...) -> ConsumerConfig: ...
@overload
def client_properties(path: str | Path, client: Literal["producer"]) -> ProducerConfig: ...
@overload
def client_properties(path: str | Path, client: Literal["admin"]) -> SecurityConfig: ...
def client_properties(path: str | Path, client: str = "consumer") -> Any:
    """Read a Java properties file, and return options for a "consumer", a "producer" or an "admin" client.

    The result contains the properties for which this library has an option. For an admin client, it contains
    only security properties.

    A consumer ignores the properties of a producer, and a producer ignores the properties of a consumer. Both
    ignore properties that affect only Java, such as the class names of serializers, and bootstrap.servers,
    which is the client's first argument. One line of the log names these properties. Unknown properties are
    ignored with a warning.

    An unsupported property that would change the client's behaviour raises ConfigError. So do a misspelt name
    and an unreadable file.
    """
    if client not in ("consumer", "producer", "admin"):
        raise ConfigError("client", client, "allowed: 'consumer', 'producer', 'admin'")
    try:
        return _read_options(path, client)
    # Raise the error again from this function, because a traceback with the inner frames would contain
    # passwords.
    except KprotoError as error:
        if error.__suppress_context__:
            error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904


def _read_options(path: str | Path, client: str) -> Any:
    properties = _read_file(path)
    security = from_java(properties)
    if client == "admin":
        return security
    from .client_options import options_of

    return {**options_of(properties, client, str(path)), **security}


def about_security(path: str | Path) -> dict[str, str]:
    """Read a file, and return its security properties under Java's names.

    Raise ConfigError if the file is unreadable.
    """
    return {name: value for name, value in _read_file(path).items() if name.startswith(PREFIXES)}


def about_registry(path: str | Path) -> dict[str, str]:
    """Read a file, and return its schema registry properties.

    Raise ConfigError if the file is unreadable.

    Confluent's tools accept login properties with and without the prefix `schema.registry.`. They are
    returned without this prefix.
    """
    selected = {
        name: value for name, value in _read_file(path).items() if name.startswith(_REGISTRY_PREFIXES)
    }
    return {
        name if name == "schema.registry.url" else name.removeprefix("schema.registry."): value
        for name, value in sorted(selected.items())
    }


def _read_file(path: Any) -> dict[str, str]:
    """Return all properties of a file. Raise ConfigError if it is unreadable or has `config.providers`."""
    allowed = "a Java client.properties file"
    if not isinstance(path, str | Path):
        raise ConfigError("path", HIDDEN, f"the path of {allowed}, as a string or a pathlib.Path")
    name = str(cast("object", path))
    is_content = any(separator in name for separator in ("=", ": ", "\n", "\0")) and not os.path.exists(name)
    if is_content:
        raise ConfigError("path", HIDDEN, f"the path of {allowed}, not its content")
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError("path", name, f"{allowed} ({why})") from None
    properties = read_properties(text)
    if providers := properties.get("config.providers"):
        allowed = "leave it empty, because ${...} is not resolved; write the value itself"
        raise ConfigError("config.providers", providers, allowed)
    return properties


def from_java(properties: Mapping[str, str]) -> SecurityConfig:
    """Convert security properties of Java to options. An unsupported property raises ConfigError."""
    settings = {name: _trim(name, text) for name, text in properties.items() if name.startswith(PREFIXES)}
    remaining = {name: value for name, value in settings.items() if value}
    options: dict[str, Any] = {}
    for java, ours in _RENAMED.items():
        if java in remaining:
            options[ours] = remaining.pop(java)
    identification = "ssl.endpoint.identification.algorithm"
    if identification in settings:
        algorithm = settings[identification].lower()
        remaining.pop(identification, None)
        if algorithm not in ("", "https"):
            raise ConfigError(identification, algorithm, "https, or empty for no check")
        if not algorithm:  # An empty value disables the check of the host name.
            options["ssl_check_hostname"] = False
    _set_tls_files(remaining, options)
    _set_login(remaining, options)
    _set_grant_type(remaining, options)
    protocols = remaining.pop("ssl.enabled.protocols", "")
    if protocols and "TLSv1.2" not in protocols:
        if "TLSv1.3" not in protocols:
            raise ConfigError("ssl.enabled.protocols", protocols, "TLSv1.2, TLSv1.3, or both")
        options["ssl_min_version"] = "TLSv1.3"
    for name in remaining:
        option = name.replace(".", "_")
        if option in NAMES:  # The property is an option of this library, with dots instead of underscores.
            options[option] = _option_value(option, remaining[name])
        elif name not in _IGNORED:
            allowed = _with_dots(option_hint(option, "an admin client") or "this client has no such option")
            raise ConfigError(name, mask_secret(name, remaining[name]), allowed)
    if str(options.get("sasl_mechanism", "")).upper() != "GSSAPI":
        options.pop("sasl_kerberos_service_name", None)  # Java uses the property only with GSSAPI.
    if not str(options.get("security_protocol", "PLAINTEXT")).upper().endswith("SSL"):
        options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return cast("SecurityConfig", options)


def _option_value(option: str, text: str) -> Any:
    """Convert an option's text. Invalid text is returned unchanged, and the option's check rejects it."""
    if option in _FLAG_OPTIONS:
        return _FLAG_VALUES.get(text.lower(), text)
    return int(text) if option in _NUMBER_OPTIONS and text.isascii() and text.isdigit() else text


def _set_grant_type(settings: dict[str, str], options: dict[str, Any]) -> None:
    """Set the grant type for the class in sasl.oauthbearer.jwt.retriever.class, and remove this property.

    Java's default class sends a client assertion only if the properties name a file with the assertion, or
    its issuer (Java's ClientCredentialsRequestFormatterFactory). Without these two, the class ignores the
    other assertion properties.
    """
    retriever_property = "sasl.oauthbearer.jwt.retriever.class"
    retriever = settings.pop(retriever_property, "")
    class_name = retriever.rpartition(".")[2]
    with_credentials = class_name in ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
    if any(name.startswith("sasl.oauthbearer.assertion.") for name in settings):
        if "sasl.oauthbearer.grant.type" in settings:
            return  # This library's option, which Java does not have.
        if with_credentials and any(name in settings for name in _DEFAULT_ASSERTION_PROPERTIES):
            options["sasl_oauthbearer_grant_type"] = CLIENT_CREDENTIALS
            # As in Java, the assertion replaces the client secret.
            options.pop("sasl_oauthbearer_client_secret", None)
            settings.pop("sasl.oauthbearer.header.urlencode", None)
        elif class_name != "JwtBearerJwtRetriever":
            allowed = (
                "a JwtBearerJwtRetriever together with sasl.oauthbearer.assertion properties, or set "
                "sasl.oauthbearer.assertion.claim.iss, too"
            )
            raise ConfigError(retriever_property, retriever or None, allowed)
    elif not with_credentials:
        allowed = (
            "a DefaultJwtRetriever or ClientCredentialsJwtRetriever, a JwtBearerJwtRetriever with "
            "sasl.oauthbearer.assertion properties, or sasl.oauth.token.provider instead"
        )
        raise ConfigError(retriever_property, retriever, allowed)


def _trim(name: str, text: str) -> str:
    """Trim a property's value as Java's ConfigDef does, passwords included.

    Only the values of Java's properties are trimmed. The value of an option that only this library has keeps
    its spaces.
    """
    is_only_ours = name.replace(".", "_") in NAMES and name not in _RENAMED
    return text if is_only_ours else text.strip(_WHITESPACE)


def _with_dots(hint: str) -> str:
    """Return an error's advice, with the option names spelled with dots as in a properties file."""
    return re.sub(
        r"\w+", lambda word: word[0].replace("_", ".") if word[0] in _OPTIONS_IN_FILES else word[0], hint
    )


# Java's property -> this library's option, which has the same value.
_RENAMED: Final[Mapping[str, str]] = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
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


def _set_tls_files(settings: dict[str, str], options: dict[str, Any]) -> None:
    """Set the TLS options for the trust store and the key store. Remove their properties from `settings`."""
    trust_store = settings.pop("ssl.truststore.location", None)
    trust_store_type = _store_type(trust_store, settings.pop("ssl.truststore.type", None))
    trust_store_password = settings.pop("ssl.truststore.password", None)
    authorities = settings.pop("ssl.truststore.certificates", None)
    if authorities is not None:
        options["ssl_cafile"] = authorities
    elif trust_store is not None:
        _check_store_type("ssl.truststore", trust_store, trust_store_type)
        if trust_store_type == "PKCS12":
            options["ssl_cafile"] = _read_trust_store(trust_store, trust_store_password)
        else:
            options["ssl_cafile"] = trust_store
    key_store = settings.pop("ssl.keystore.location", None)
    key_store_type = _store_type(key_store, settings.pop("ssl.keystore.type", None))
    key_store_password = settings.pop("ssl.keystore.password", None)
    key_password = settings.pop("ssl.key.password", None)
    chain, key = settings.pop("ssl.keystore.certificate.chain", None), settings.pop("ssl.keystore.key", None)
    if key_store is not None:
        _check_store_type("ssl.keystore", key_store, key_store_type)
    if chain is not None or key_store is not None:
        options["ssl_certfile"] = chain if chain is not None else key_store
        if key is not None:
            options["ssl_keyfile"] = key
        is_pkcs12_store = key_store is not None and key_store_type == "PKCS12"
        password = key_store_password if is_pkcs12_store else key_password or key_store_password
        if password is not None:
            options["ssl_password"] = password


def _store_type(path: str | None, declared: str | None) -> str:
    """Return a store's format: the declared format, else the format of the file extension.

    If neither gives a format, the format is JKS, Java's default, or PEM if the store has no path. Java also
    reads a PKCS12 file that is declared as JKS. So a JKS file counts as PKCS12 if its content is PKCS12.
    """
    extensions = {"PKCS12": (".p12", ".pfx"), "PEM": (".pem", ".crt", ".cer", ".key")}
    if declared is None:
        default = "PEM" if path is None else "JKS"
        declared = next(
            (kind for kind, ends in extensions.items() if path and path.lower().endswith(ends)), default
        )
    if declared.upper() == "JKS" and path is not None and is_pkcs12(path):
        return "PKCS12"
    return declared.upper()


def _check_store_type(store: str, path: str, kind: str) -> None:
    """Raise ConfigError if the store is neither PEM nor PKCS12. `store` is the prefix of its properties."""
    if kind not in ("PEM", "PKCS12"):
        if not os.path.isfile(path):
            allowed = "this file does not exist; give the path of an existing PEM or PKCS12 file"
            raise ConfigError(f"{store}.location", path, allowed)
        allowed = (
            f"PEM or PKCS12: convert {path} with `keytool -importkeystore -deststoretype PKCS12 "
            "-destkeystore FILE.p12 -srckeystore ...`"
        )
        raise ConfigError(f"{store}.type", kind, allowed)


def _read_trust_store(path: str, password: str | None) -> str:
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
    entries = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    if not entries:
        allowed = "a PKCS12 file with certificates; it has none"
        raise ConfigError("ssl.truststore.location", path, allowed)
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries).decode()


def _set_login(settings: dict[str, str], options: dict[str, Any]) -> None:
    """Set the options for the login module in sasl.jaas.config, and remove this property.

    Without the option sasl_mechanism, the login module determines the mechanism. If the option has an unknown
    mechanism, no option is set, and the check of sasl_mechanism raises the error later.
    """
    line = settings.pop("sasl.jaas.config", None)
    if line is None:
        return
    configured = options.get("sasl_mechanism")
    is_known = any(str(configured).upper() in mechanisms for mechanisms in _LOGIN_MODULES.values())
    if configured is not None and not is_known:
        return
    module, jaas_options = read_jaas(line)
    mechanism = _login_mechanism(module, configured)
    for name, text in jaas_options.items():
        why = next((why for prefix, why in _UNSUPPORTED_JAAS.items() if name.startswith(prefix)), None)
        if why is not None and text.lower() != "false":
            raise ConfigError("sasl.jaas.config", module, f"without {name}: {why}")
    options.setdefault("sasl_mechanism", mechanism)
    if mechanism in _OPTIONAL_JAAS:
        for jaas, ours in _OPTIONAL_JAAS[mechanism].items():
            if jaas in jaas_options:
                options.setdefault(ours, jaas_options[jaas])
        prefix = "extension_"
        names = [name for name in jaas_options if name.startswith(prefix)]
        if names and mechanism == "OAUTHBEARER":
            options["sasl_extensions"] = {name.removeprefix(prefix): jaas_options[name] for name in names}
        return
    for jaas, ours in (("username", "sasl_username"), ("password", "sasl_password")):
        if jaas not in jaas_options:
            raise ConfigError("sasl.jaas.config", module, f'with {jaas}="..." after the module\'s name')
        options[ours] = jaas_options[jaas]
    # Of Java's login modules, only ScramLoginModule reads `tokenauth`.
    if mechanism.startswith("SCRAM") and jaas_options.get("tokenauth", "").lower() == "true":
        options["sasl_token_auth"] = True


def _login_mechanism(module: str, configured: Any) -> str:
    """Return the mechanism `configured`, or the module's default if `configured` is None.

    Raises ConfigError if the module is unknown, or does not support the configured mechanism.
    """
    mechanisms = next(
        (known for name, known in _LOGIN_MODULES.items() if module.endswith(f".{name}") or module == name),
        None,
    )
    if mechanisms is None:
        raise ConfigError("sasl.jaas.config", module, f"one of {', '.join(_LOGIN_MODULES)}")
    mechanism = mechanisms[0] if configured is None else str(configured).upper()
    if mechanism not in mechanisms:
        raise ConfigError("sasl.jaas.config", module, f"a module for sasl.mechanism {mechanism}")
    return mechanism


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
        # An odd number of backslashes at the end of a line continues it on the next line.
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line, continuation = line[:-1], next(lines, "").lstrip(" \t\f")
            if not line and continuation[:1] in ("", "#", "!"):
                break  # The line is continued, but the next line is empty or a comment.
            line += continuation
        if not line:
            continue
        name_end = 0
        while name_end < len(line) and line[name_end] not in "=: \t\f":
            name_end += 2 if line[name_end] == "\\" else 1
        escaped_value = line[name_end:].lstrip(" \t\f")
        if escaped_value[:1] in ("=", ":"):
            escaped_value = escaped_value[1:].lstrip(" \t\f")
        name, value = _unescape(line[:name_end]), _unescape(escaped_value)
        if name is None or value is None:
            allowed = r"\u with four hexadecimal digits, and \\ for a backslash"
            raise ConfigError(name or HIDDEN, HIDDEN, allowed)
        properties[name] = value
    return properties


def _unescape(text: str) -> str | None:
    r"""Replace Java's escape sequences. Return None for a \u that is not followed by four hex digits."""
    if "\\" not in text:
        return text
    if any(escape[2] == "u" for escape in _ESCAPE.finditer(text)):
        return None

    def replacement(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        return _ESCAPED_CHARACTERS.get(escape[2], escape[2])

    # Java writes a character beyond U+FFFF as two surrogates. They are joined into one character.
    return (
        _ESCAPE.sub(replacement, text)
        .encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le", "surrogatepass")
    )
