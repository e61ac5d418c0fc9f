"""The names of the TLS and SASL options, and the names that other clients give them.

Importing this module loads neither `ssl` nor the modules that implement SASL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from .secret import HIDDEN, is_secret_value, mask_logins

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


class SecurityConfig(TypedDict, total=False):
    """The keyword arguments for TLS and SASL that every client accepts.

    Certificates and keys are given as the path of a file, or as PEM text.
    """

    security_protocol: str
    ssl_cafile: str | Path | None
    ssl_certfile: str | Path | None
    ssl_keyfile: str | Path | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_min_version: str
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_token_auth: bool
    sasl_oauth_token_provider: Callable[[], Any] | str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_grant_type: str | None
    sasl_oauthbearer_assertion_algorithm: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | Path | None
    sasl_oauthbearer_assertion_private_key_file: str | Path | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | Path | None
    sasl_extensions: Mapping[str, str] | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | Path | None


# The description of each option, for `help` and docs/reference/client-options.md.
SECURITY: Final[Mapping[str, str]] = {
    "security_protocol": "PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL.",
    "ssl_cafile": (
        "The trusted authorities, as a file or PEM text. The default is the trust store of the system."
    ),
    "ssl_certfile": (
        "The certificate of this client, as a file or PEM text. It may include the key. A PKCS12 file "
        "(.p12, .pfx) needs the extra `security`."
    ),
    "ssl_keyfile": "The key of this client, if ssl_certfile does not include it.",
    "ssl_password": "The password of the key, or of the PKCS12 file.",
    "ssl_check_hostname": (
        "Check that the broker's certificate contains the name used to connect. The default is True."
    ),
    "ssl_min_version": "TLSv1.2 (the default) or TLSv1.3.",
    "ssl_context": "Your own `ssl.SSLContext`, instead of the other options that begin with ssl_.",
    "sasl_mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.",
    "sasl_username": "The user, for PLAIN and SCRAM.",
    "sasl_password": "The password. It never appears in errors, logs, reprs or pickles.",
    "sasl_token_auth": (
        "With SCRAM: sasl_username and sasl_password are the id and the HMAC, in base64, of a delegation "
        "token (KIP-48). The default is False."
    ),
    "sasl_oauth_token_provider": (
        "A function that returns a token, or a `Token` with its expiry and extensions. It may block, "
        'and in asyncio clients it may be a coroutine function. Its name, "package.module:function", is '
        "allowed too."
    ),
    "sasl_oauthbearer_token_endpoint_url": "The endpoint that issues tokens for client credentials (OIDC).",
    "sasl_oauthbearer_client_id": "The client id for the token endpoint.",
    "sasl_oauthbearer_client_secret": "The client secret for the token endpoint.",
    "sasl_oauthbearer_scope": "The scope to request from the token endpoint.",
    "sasl_oauthbearer_header_urlencode": (
        "Percent-encode client id and secret in the request to the token endpoint, as RFC 6749 requires. The "
        "default is False, as in Java."
    ),
    "sasl_oauthbearer_grant_type": (
        "The request to the token endpoint: client_credentials, or "
        "urn:ietf:params:oauth:grant-type:jwt-bearer, which is the default with the options that begin with "
        "sasl_oauthbearer_assertion_. With client_credentials and these options, the assertion replaces the "
        "client secret (KIP-1258)."
    ),
    "sasl_oauthbearer_assertion_algorithm": "The algorithm of the signature: RS256 (the default) or ES256.",
    "sasl_oauthbearer_assertion_claim_aud": "The audience (aud) of the assertion.",
    "sasl_oauthbearer_assertion_claim_exp_seconds": (
        "The seconds from now until the assertion expires (exp). The default is 300."
    ),
    "sasl_oauthbearer_assertion_claim_iss": "The issuer (iss) of the assertion.",
    "sasl_oauthbearer_assertion_claim_jti_include": (
        "Add a unique id (jti) to the assertion. The default is False."
    ),
    "sasl_oauthbearer_assertion_claim_nbf_seconds": (
        "The seconds before now from which the assertion is valid (nbf). The default is 60."
    ),
    "sasl_oauthbearer_assertion_claim_sub": "The subject (sub) of the assertion.",
    "sasl_oauthbearer_assertion_file": (
        "A file with an assertion that another program has signed, instead of a key and claims."
    ),
    "sasl_oauthbearer_assertion_private_key_file": (
        "The key in PEM that signs the assertion. The token endpoint then gets a signed assertion instead of "
        "a secret, by default by the JWT bearer grant (KIP-1139). Needs the extra `security`."
    ),
    "sasl_oauthbearer_assertion_private_key_passphrase": "The passphrase of the key.",
    "sasl_oauthbearer_assertion_template_file": (
        'A file with further claims, as JSON: {"header": {...}, "payload": {...}}.'
    ),
    "sasl_extensions": "SASL extensions that are sent with the token (KIP-342).",
    "sasl_kerberos_service_name": (
        "The name of the brokers' service in Kerberos, for GSSAPI. The default is kafka. Needs the extra "
        "`kerberos`."
    ),
    "sasl_kerberos_domain_name": "The host in the name of the service. The default is that of each broker.",
    "sasl_kerberos_principal": (
        "The principal to log in as. The default is that of the ticket cache or keytab."
    ),
    "sasl_kerberos_keytab": "A file with keys of the principal. Without it, run kinit before.",
}

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NAMES: Final = frozenset(SecurityConfig.__annotations__)
# The prefixes of Java's security properties.
PREFIXES: Final = ("security.", "ssl.", "sasl.")

# Option of another client -> the option to use here. The clients are Java and librdkafka (with dots as
# underscores), kafka-python and aiokafka.
SPELLINGS: Final[Mapping[str, str]] = {
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_cafile, which may be PEM text",
    "ssl_ca": "ssl_cafile",
    "ssl_truststore_location": "ssl_cafile, a file of PEM certificates",
    "ssl_truststore_certificates": "ssl_cafile, which may be PEM text",
    "ssl_truststore_password": "ssl_cafile, a file of PEM certificates, which needs no password",
    "ssl_truststore_type": "ssl_cafile, a file of PEM certificates",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_certfile, which may be PEM text",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keyfile, which may be PEM text",
    "ssl_key_password": "ssl_password",
    "ssl_keystore_location": "ssl_certfile, PEM or PKCS12",
    "ssl_keystore_certificate_chain": "ssl_certfile, which may be PEM text",
    "ssl_keystore_key": "ssl_keyfile, which may be PEM text",
    "ssl_keystore_password": "ssl_password",
    "ssl_keystore_type": "ssl_certfile, PEM or PKCS12",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname, True or False",
    "enable_ssl_certificate_verification": "ssl_context, your own, if certificates must not be checked",
    "ssl_protocol": "ssl_min_version",
    "ssl_enabled_protocols": "ssl_min_version",
    "ssl_ciphers": "ssl_context, your own",
    "ssl_crlfile": "ssl_context, your own",
    "ssl_crl_location": "ssl_context, your own",
    "ssl_curves_list": "ssl_context, your own",
    "ssl_sigalgs_list": "ssl_context, your own",
    "ssl_ca_certificate_stores": "ssl_context, your own",
    "ssl_cipher_suites": "ssl_context, your own",
    "ssl_provider": "ssl_context, your own",
    "ssl_providers": "ssl_context, your own",
    "ssl_engine_factory_class": "ssl_context, your own",
    "ssl_engine_location": "ssl_context, your own",
    "ssl_keymanager_algorithm": "ssl_context, your own",
    "ssl_trustmanager_algorithm": "ssl_context, your own",
    "ssl_secure_random_implementation": "ssl_context, your own",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_jaas_config": "sasl_username and sasl_password, or consumer.security.client_properties(FILE)",
    "sasl_oauthbearer_config": "sasl_oauth_token_provider",
    "oauth_cb": "sasl_oauth_token_provider",
    "sasl_login_callback_handler_class": "sasl_oauth_token_provider",
    "sasl_oauthbearer_client_credentials_client_id": "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_credentials_client_secret": "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_extensions": "sasl_extensions",
    "sasl_oauthbearer_jwt_retriever_class": "sasl_oauth_token_provider",
    "sasl_oauthbearer_assertion_private_key_pem": "sasl_oauthbearer_assertion_private_key_file",
    "sasl_oauthbearer_assertion_jwt_template_file": "sasl_oauthbearer_assertion_template_file",
    "sasl_oauthbearer_method": "sasl_oauthbearer_token_endpoint_url (OIDC), or sasl_oauth_token_provider",
    "enable_sasl_oauthbearer_unsecure_jwt": "sasl_oauth_token_provider",
    "sasl_kerberos_name": "sasl_kerberos_principal",
}


# Minimum similarity (difflib's ratio) of an unknown option to the suggested option. With 0.6, the suggestion
# for `group_name` would be `group_instance_id`.
LIKENESS: Final = 0.75


def unknown_hint(name: str) -> str | None:
    """Return advice for an option of another client, or None if the option is unknown."""
    normalized = name.replace(".", "_").lower()
    replacement = SPELLINGS.get(normalized)
    return None if replacement is None else f"use {replacement}"


def mask_secret(name: str, value: object) -> object:
    """Return the option's value for an error message, masked if it is a secret.

    Of an address or a URL, only the parts that may be secret are masked, such as the login.
    """
    is_key = isinstance(value, str) and "PRIVATE KEY" in value
    if is_key or is_secret_value(name, value):
        return HIDDEN
    dotted = name.lower().replace("_", ".")
    may_be_url = isinstance(value, str) and ("://" in value or "url" in dotted or "registry" in dotted)
    # A URL contains secrets only in its login ("@"), its query ("?") or its fragment ("#").
    is_url_with_secrets = may_be_url and any(mark in str(value) for mark in "@?#")
    is_address = dotted.endswith(("servers", "server", "brokers", "broker.list"))
    if is_url_with_secrets or is_address:
        return mask_logins(value)
    return value
