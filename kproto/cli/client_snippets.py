"""How clients in other languages get into a broker with certificates of its own: lines to copy from.

Passwords are not printed, as who starts the broker knows them: `...` stands for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..testing.certificates import Certificates

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def how_to(places: Mapping[str, str], made: Certificates, users: Mapping[str, str], auth: str) -> str:
    """Into its safest listener, as the first user; `auth` is whether clients are asked for certificates."""
    protocol = "SASL_SSL" if "SASL_SSL" in places else "SSL"
    place, user = places[protocol], next(iter(users), "NAME")
    sasl, shows = protocol == "SASL_SSL", auth != "none"
    lines = {
        "kproto": [_kproto(place, protocol, made, user, sasl, shows)],
        "Java": _java(protocol, made, user, sasl, shows),
        "librdkafka": _librdkafka(protocol, made, user, sasl, shows),
        "Go": _trust(made, shows),
        "  franz-go": [_franz(place, user, sasl)],
        "  sarama": [_sarama(user, sasl)],
    }
    told = [f"certificates are in {Path(made.ca).parent}: ca.pem; client.pem if clients are asked for theirs"]
    for name, said in lines.items():
        told += [
            f"  {label:<11} {line}" for label, line in zip([name, *[""] * len(said)], said, strict=False)
        ]
    return "\n".join(told)


def _kproto(place: str, protocol: str, made: Certificates, user: str, sasl: bool, shows: bool) -> str:
    words = [f'"{place}"', f'security_protocol="{protocol}"', f'ssl_cafile="{made.ca}"']
    if shows:
        words += [f'ssl_certfile="{made.client}"']
    if sasl:
        words += ['sasl_mechanism="SCRAM-SHA-512"', f'sasl_username="{user}"', 'sasl_password="..."']
    return f"Consumer({', '.join(words)})"


def _java(protocol: str, made: Certificates, user: str, sasl: bool, shows: bool) -> list[str]:
    said = [f"security.protocol={protocol}", "ssl.truststore.type=PEM", f"ssl.truststore.location={made.ca}"]
    if shows:
        said += ["ssl.keystore.type=PEM", f"ssl.keystore.location={made.client}"]
    if sasl:
        login = f'{_MODULE} required username="{user}" password="...";'
        said += ["sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={login}"]
    return said


def _librdkafka(protocol: str, made: Certificates, user: str, sasl: bool, shows: bool) -> list[str]:
    said = [f"security.protocol={protocol}", f"ssl.ca.location={made.ca}"]
    if shows:
        said += [f"ssl.certificate.location={made.client}", f"ssl.key.location={made.client}"]
    if sasl:
        said += ["sasl.mechanism=SCRAM-SHA-512", f"sasl.username={user}", "sasl.password=..."]
    return said


def _trust(made: Certificates, shows: bool) -> list[str]:
    said = [
        f'pem, _ := os.ReadFile("{made.ca}")',
        "pool := x509.NewCertPool(); pool.AppendCertsFromPEM(pem)",
        "trust := &tls.Config{RootCAs: pool}",
    ]
    if shows:
        said += [
            f'own, _ := tls.LoadX509KeyPair("{made.client}", "{made.client}")',
            "trust.Certificates = []tls.Certificate{own}",
        ]
    return said


def _franz(place: str, user: str, sasl: bool) -> str:
    login = f', kgo.SASL(scram.Auth{{User: "{user}", Pass: "..."}}.AsSha512Mechanism())' if sasl else ""
    return f'kgo.NewClient(kgo.SeedBrokers("{place}"), kgo.DialTLSConfig(trust){login})'


def _sarama(user: str, sasl: bool) -> str:
    # By PLAIN, as it comes without any code for SCRAM.
    login = (
        f'; c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "{user}", "..."' if sasl else ""
    )
    return f"c := sarama.NewConfig(); c.Net.TLS.Enable, c.Net.TLS.Config = true, trust{login}"
