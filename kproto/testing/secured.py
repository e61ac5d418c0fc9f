"""A test broker that authenticates clients and authorizes their requests.

A test can change the broker's passwords, certificates and ACLs.

    def test_the_service_logs_in(kafka_secured):           # the fixture of kproto.testing.plugin
        kafka = kafka_secured("SASL_SSL", users={"alice": "secret"}, acls=allow("alice", "READ", topic="t"))
        service = start_service(kafka.bootstrap, ca=kafka.certificates.ca, user="alice", password="secret")

The broker is always the embedded one, because faults cannot be injected into other brokers.

The calls that the test itself makes (`create_topic`, `records`, ...) use a listener without security. There,
all operations are allowed.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypedDict, Unpack

from consumer.errors import broker_error
from consumer.security import SecurityConfig

from ..broker.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, Resource
from ..broker.security.authenticator import ANONYMOUS
from ..broker.server import Server, running
from ..errors import ConfigError
from ..messages.create_acls import AclCreation, CreateAclsRequest
from ..messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ..security.oauthbearer import unsecured, unsecured_token
from ..validation import (
    NAMES_TO_SETTINGS,
    NAMES_TO_TEXTS,
    NUMBER,
    TEXT,
    Rule,
    checked,
    has_attributes,
    secret,
)
from .certificates import Certificates
from .issuer import Issuer
from .kafka import Kafka

Protocol = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
SHOWN: Final = ("server", "expired", "elsewhere")
_PLAIN_LISTENER: Final = "PLAINTEXT"


# Rules of arguments.
_CERTIFICATES: Final = Rule(has_attributes("context"), "what kproto.testing.certificates makes")
_ISSUER: Final = Rule(has_attributes("check", "token"), "what kproto.testing.issuer makes")


class SecuredKafka(Kafka):
    """The broker of a test, with the calls of `Kafka` and a listener that uses TLS, SASL or both.

    `bootstrap` is the address of this listener, and `certificates` contains the paths of the certificates.
    """

    def __init__(
        self,
        server: Server,
        security: Protocol,
        certificates: Certificates,
        tls: ssl.SSLContext,
        issuer: Issuer | None,
    ) -> None:
        super().__init__(server.places[_PLAIN_LISTENER], server)
        self.bootstrap = server.places[security]
        self.security = security
        self.certificates = certificates
        self._tls = tls
        self._issuer = issuer

    def __repr__(self) -> str:
        return f"<SecuredKafka at {self.bootstrap} by {self.security}>"

    @checked(user=TEXT, password=TEXT, mechanism=TEXT)
    def options(self, user: str = "", password: str = "", mechanism: str = "SCRAM-SHA-512") -> SecurityConfig:
        """Return the security options for kproto's clients.

        With OAUTHBEARER the options contain a provider that creates tokens for `user`.
        """
        client_options: SecurityConfig = {"security_protocol": self.security}
        if self.security.endswith("SSL"):
            client_options["ssl_cafile"] = self.certificates.ca
        if self.security == "SSL":
            client_options["ssl_certfile"] = self.certificates.client
        elif mechanism == "OAUTHBEARER":
            client_options |= {
                "sasl_mechanism": mechanism,
                "sasl_oauth_token_provider": lambda: self.token(user),
            }
        else:
            client_options |= {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
        return client_options

    @checked(user=TEXT, seconds=NUMBER)
    def token(self, user: str, seconds: float = 60.0) -> str:
        """Return an OAUTHBEARER token that the broker accepts for `seconds` seconds.

        The issuer signs the token. Without an issuer the token is unsigned.
        """
        if self._issuer is not None:
            return self._issuer.token(user, seconds)
        return unsecured_token(user, _now_ms(), int(seconds * 1000))

    # ---- faults

    @checked(user=TEXT, password=TEXT)
    def set_password(self, user: str, password: str) -> None:
        """Change the password of `user`.

        As on a real broker, an open session continues until it has to re-authenticate
        (connections.max.reauth.ms) or its connection breaks. Raises ConfigError for an unknown user.
        """
        self.server.users.set(self._require_user(user), password)

    @checked(user=TEXT)
    def remove_user(self, user: str) -> None:
        """Reject later logins of `user`. Open sessions continue, as after `set_password`."""
        self.server.users.remove(self._require_user(user))

    def _require_user(self, user: str) -> str:
        """Return `user`. Raises ConfigError for an unknown user."""
        users = self.server.users
        if user not in users.known() and users.password(user) is None:
            names = ", ".join(users.known()) or "nobody"
            raise ConfigError(
                "user", user, f"known users: {names}; call server.users.set(name, password) to add one"
            )
        return user

    def show_certificate(self, which: Literal["server", "expired", "elsewhere"]) -> None:
        """Select the broker's certificate for new connections: valid, expired, or for another host.

        Open connections are not affected; see `drop_connections`.
        """
        if which not in SHOWN:
            raise ConfigError("which", which, f"allowed: {', '.join(SHOWN)}")
        self._tls.load_cert_chain(getattr(self.certificates, which))

    def drop_connections(self) -> None:
        """Close every connection. Clients may reconnect immediately."""
        self.server.drop_connections()

    def add(self, acls: Iterable[Acl]) -> None:
        """Add access rules; see `allow` and `deny`.

        Raises BrokerError if the broker was created without `acls`.
        """
        rules = _require_rules(acls)
        creations = [
            AclCreation(
                resource_type=acl.resource,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in rules
        ]
        response: Any = self.cluster.request(CreateAclsRequest(creations=creations))
        for acl, result in zip(creations, response.results, strict=True):
            if result.error_code:
                raise broker_error(
                    result.error_code, "CreateAcls", f"{acl.resource_name}: {result.error_message}"
                )

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove access rules. The removal also applies to clients that are already connected.

        Each rule must have been added before. Raises ConfigError for a rule that does not exist.
        """
        rules = _require_rules(acls)
        filters = [
            DeleteAclsFilter(
                resource_type_filter=acl.resource,
                resource_name_filter=acl.name,
                pattern_type_filter=acl.pattern,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in rules
        ]
        response: Any = self.cluster.request(DeleteAclsRequest(filters=filters))
        for acl, result in zip(rules, response.filter_results, strict=True):
            if result.error_code:
                raise broker_error(result.error_code, "DeleteAcls", f"{acl.name}: {result.error_message}")
            if not result.matching_acls:
                raise ConfigError("acls", acl, "allowed: only rules that exist, exactly as they were added")


@contextmanager
@checked(certificates=_CERTIFICATES, users=secret(NAMES_TO_TEXTS), settings=NAMES_TO_SETTINGS, issuer=_ISSUER)
def secured(
    security: Protocol,
    certificates: Certificates,
    *,
    users: Mapping[str, str] | None = None,
    acls: Iterable[Acl] | None = None,
    settings: Mapping[str, str | int] | None = None,
    client_auth: Literal["none", "requested", "required"] = "none",
    issuer: Issuer | None = None,
) -> Generator[SecuredKafka]:
    """Run a broker with one secured listener.

    `users` maps names to passwords, for PLAIN and SCRAM. Every user may also authenticate with an OAUTHBEARER
    token (see `token`). With `issuer`, the issuer must have signed the token.

    If `acls` is None, all operations are allowed. If `acls` is set, even to an empty list, an operation needs
    a rule that allows it.

    `settings` are broker settings. `client_auth` determines whether clients need a certificate.

    Raises ConfigError for invalid arguments.
    """
    if security not in PROTOCOLS:
        raise ConfigError("security", security, f"allowed: {', '.join(PROTOCOLS)}")
    tls = certificates.context(client_auth)
    # Without tickets no TLS session is resumed. In a resumed session the broker sends no certificate, so
    # `show_certificate` would have no effect.
    tls.options |= ssl.OP_NO_TICKET
    tls.num_tickets = 0
    broker_settings: dict[str, str | int] = {"group.min.session.timeout.ms": "100", **(settings or {})}
    if acls is not None:
        broker_settings = {
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": ANONYMOUS,
            **broker_settings,
        }
    listen = [f"{_PLAIN_LISTENER}://127.0.0.1:0", f"{security}://127.0.0.1:0"]
    tokens = unsecured(_now_ms) if issuer is None else issuer.check(_now_ms)
    rules = None if acls is None else _require_rules(acls)
    with running(settings=broker_settings, listen=listen, users=users, tokens=tokens, tls=tls) as server:
        kafka = SecuredKafka(server, security, certificates, tls, issuer)
        try:
            if rules:
                kafka.add(rules)
            yield kafka
        finally:
            kafka.close()


class On(TypedDict, total=False):
    """The resources to which rules apply: any of topic, group, transactional id and cluster.

    With `prefixed`, the rules apply to all resources whose names begin with the given name.
    """

    topic: str
    group: str
    transactional_id: str
    cluster: bool
    prefixed: bool


_NAMED_RESOURCES: Final[Mapping[Literal["topic", "group", "transactional_id"], Resource]] = {
    "topic": Resource.TOPIC,
    "group": Resource.GROUP,
    "transactional_id": Resource.TRANSACTIONAL_ID,
}


def allow(user: str, *operations: str, **on: Unpack[On]) -> list[Acl]:
    """Return rules that allow `user` these operations, which have Kafka's names, such as READ.

    `user` is a name, or a principal such as User:alice. As a user or a resource name, "*" means all.

    Raises ConfigError for invalid arguments.
    """
    return _build_rules(Permission.ALLOW, user, operations, on)


def deny(user: str, *operations: str, **on: Unpack[On]) -> list[Acl]:
    """Return rules that deny these operations. Deny rules take precedence over allow rules."""
    return _build_rules(Permission.DENY, user, operations, on)


def _require_rules(acls: object) -> list[Acl]:
    """Return `acls` as a list. Raises ConfigError if `acls` is not a collection of rules."""
    rules: list[Any] = list(acls) if isinstance(acls, Iterable) else [acls]  # pyright: ignore[reportUnknownArgumentType]
    for acl in rules:
        if not isinstance(acl, Acl):
            raise ConfigError("acls", acl, 'rules, as [*allow("alice", "READ", topic="t")]')
    return rules


def _build_rules(permission: Permission, user: str, operations: tuple[str, ...], on: On) -> list[Acl]:
    """Return a rule for each resource of `on` and each operation.

    Raises ConfigError if an argument is invalid, or if `on` contains no resource.
    """
    resource: Mapping[str, object] = dict(on)
    for option, value in {"user": user, **resource}.items():
        if option not in ("user", *On.__annotations__):
            raise ConfigError(option, value, f"a resource: {', '.join(On.__annotations__)}")
        allowed_types = str if option == "user" else str | None
        if option in ("user", *_NAMED_RESOURCES) and not isinstance(value, allowed_types):
            raise ConfigError(option, value, "a text")
    candidates: list[tuple[Resource, str | None]] = [
        (kind, on.get(name)) for name, kind in _NAMED_RESOURCES.items()
    ]
    candidates.append((Resource.CLUSTER, CLUSTER_NAME if on.get("cluster") else None))
    resources = [(kind, name) for kind, name in candidates if name is not None]
    if not resources:
        raise ConfigError("topic", None, "give at least one of topic, group, transactional_id and cluster")
    known_operations = [operation.name for operation in Operation if operation is not Operation.ANY]
    for operation in operations or (None,):
        if operation not in known_operations:
            raise ConfigError("operations", operation, f"allowed: {', '.join(known_operations)}")
    principal = user if user.startswith("User:") else f"User:{user}"
    pattern = PatternType.PREFIXED if on.get("prefixed") else PatternType.LITERAL
    return [
        Acl(kind, name, pattern, principal, "*", Operation[operation], permission)
        for kind, name in resources
        for operation in operations
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
