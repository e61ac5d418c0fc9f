"""In a real Spark, format("kproto") uses TLS and SASL, with the embedded broker and Kafka."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from consumer import Admin
from consumer.spark.security import SecurityProperties
from kproto.broker.server import running
from kproto.testing.certificates import certificates
from kproto.testing.issuer import Issuer, issuing
from tests.conformance.spark_session import spark, started

secured = pytest.importorskip("tests.conformance.secured_kafka")
pytestmark = pytest.mark.spark
__all__ = ["spark"]
PASSWORD = secured.USERS["alice"]
WRONG = "wr0ng-of-alice"
CLIENT_SECRET = "s3cret-of-a-client"
# The base64 prefix of the claims in all of the issuer's tokens. It must not appear in any output.
TOKENS = b64encode(b'{"sub": "alice"').decode()
SECURITY = "org.apache.kafka.common.security."


@dataclass(frozen=True)
class Kafka:
    """A broker's listeners by protocol. The listeners of `secured.SIGNED` accept the issuer's tokens."""

    places: dict[str, str]
    ca: str
    issuer: Issuer

    def options(
        self, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD, protocol: str = "SASL_SSL"
    ) -> dict[str, str]:
        """Return the options for a listener under the names that Spark's own Kafka source gives them."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "kafka.bootstrap.servers": self.places[protocol],
            "kafka.security.protocol": protocol,
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{SECURITY}{module} required username="alice" password="{password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self.ca,
        }

    def by_token(self, listener: str = "SIGNED", **more: str) -> dict[str, str]:
        """Return options for OAUTHBEARER; `_` in a name stands for a dot."""
        return {
            "kafka.bootstrap.servers": self.places[listener],
            "kafka.security.protocol": secured.SIGNED[listener],
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self.ca,
            **{f"kafka.sasl.{name.replace('_', '.')}": value for name, value in more.items()},
        }

    def by_credentials(self, secret: str = CLIENT_SECRET, listener: str = "SIGNED") -> dict[str, str]:
        return self.by_token(
            listener,
            oauthbearer_token_endpoint_url=self.issuer.token_url,
            oauthbearer_client_credentials_client_id="alice",
            oauthbearer_client_credentials_client_secret=secret,
        )

    def way(self, protocol: str, mechanism: str) -> dict[str, str]:
        """Return options for this protocol and mechanism."""
        if mechanism == "OAUTHBEARER":
            [listener] = (name for name, its in secured.SIGNED.items() if its == protocol)
            # No other test uses this scope, because Spark's processes outlive a test and cache the tokens of
            # each scope.
            return {**self.by_credentials(listener=listener), "kafka.sasl.oauthbearer.scope": "ways"}
        options = self.options(mechanism, protocol=protocol)
        return {name: value for name, value in options.items() if mechanism or "sasl" not in name}

    def topic(self) -> str:
        name = f"t-{uuid4().hex[:12]}"
        options = {k.removeprefix("kafka."): v for k, v in self.options().items() if "bootstrap" not in k}
        with Admin(
            self.places["SASL_SSL"], timeout=60, **SecurityProperties.read(options).options
        ) as cluster:
            cluster.create_topics({name: 2})
        return name


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    pytest.importorskip("jwt")
    folder = tmp_path_factory.mktemp("secured")
    with issuing({"alice": CLIENT_SECRET}) as issuer:
        if request.param == "real":
            with secured.real_kafka(folder, issuer=issuer) as broker:
                yield Kafka(broker.places, broker.certificates.ca, issuer)
            return
        files = certificates(folder)
        # SASL sessions are as short as on the real broker, so that executors re-authenticate.
        settings = {
            "connections.max.reauth.ms": str(secured.SESSION_MS),
            "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
            "sasl.oauthbearer.expected.audience": issuer.audience or "",
        }
        listen = [f"{protocol}://127.0.0.1:0" for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")]
        with running({}, settings, listen=listen, users=secured.USERS, tls=files.context()) as server:
            signed = {name: server.places[protocol] for name, protocol in secured.SIGNED.items()}
            yield Kafka({**server.places, **signed}, files.ca, issuer)


@pytest.fixture(scope="module")
def provider(spark: Any, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a module with a token provider, ship it to Spark's executors, and return the provider's name."""
    module = f"tokens_{uuid4().hex[:8]}"
    file = tmp_path_factory.mktemp("shipped") / f"{module}.py"
    file.write_text(
        "from consumer.security.secret import Secret\n"
        "from consumer.security.tokens import Endpoint\n\n"
        f"token = Endpoint({kafka.issuer.token_url!r}, 'alice', Secret({CLIENT_SECRET!r}), 'named')\n"
    )
    spark.sparkContext.addPyFile(str(file))
    return f"{module}:token"


def shown(frame: Any) -> str:
    """Return every text form of a DataFrame's plan that Spark shows to users."""
    execution = frame._jdf.queryExecution()
    return f"{execution.toString()} {execution.logical().toString()} {execution.analyzed().toJSON()}"


def kept(folder: Path) -> str:
    """Return the contents of a folder's files."""
    return "\n".join(file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())


def events(spark: Any) -> str:
    """Return Spark's event log of the whole session."""
    return kept(Path(spark.conf.get("spark.eventLog.dir").removeprefix("file://")))


def assert_no_secret(text: str) -> None:
    assert not [secret for secret in (PASSWORD, WRONG, CLIENT_SECRET, TOKENS) if secret in text]


def ways() -> Iterator[Any]:
    """Yield each protocol with each mechanism. Without KPROTO_ALL_PLAYS, yield each mechanism with one
    protocol only.
    """
    yield "SSL", ""
    for number, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")):
        for offset, protocol in enumerate(("SASL_PLAINTEXT", "SASL_SSL")):
            if os.environ.get("KPROTO_ALL_PLAYS") or (number + offset) % 2 == 0:
                yield protocol, mechanism


@pytest.mark.parametrize(("protocol", "mechanism"), list(ways()))
def test_a_stream_copies_a_batch_and_another_batch_reads_it(
    spark: Any, kafka: Kafka, protocol: str, mechanism: str, tmp_path: Path
) -> None:
    source, target, how = kafka.topic(), kafka.topic(), kafka.way(protocol, mechanism)
    rows = spark.sql("select cast(id as string) as value, cast(id % 2 as int) as partition from range(20)")
    rows.write.format("kproto").options(**how, topic=source).mode("append").save()
    stream = spark.readStream.format("kproto").options(**how, subscribe=source, startingOffsets="earliest")
    sink = stream.load().writeStream.format("kproto").options(**how, topic=target)
    query = started(sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True))
    assert query.awaitTermination(120)
    assert_no_secret(kept(tmp_path))
    frame = spark.read.format("kproto").options(**how, subscribe=target).load()
    read = frame.selectExpr("cast(value as string)").collect()
    assert sorted(int(row["value"]) for row in read) == list(range(20))


@pytest.mark.parametrize("by", ["credentials", "a function that is named"])
def test_tokens_are_fetched_on_the_driver_and_in_executors(
    spark: Any, kafka: Kafka, provider: str, by: str, capfd: pytest.CaptureFixture[str]
) -> None:
    named = by != "credentials"
    topic, requests_before = kafka.topic(), len(kafka.issuer.requested_forms)
    how = kafka.by_token(oauth_token_provider=provider) if named else kafka.by_credentials()
    rows = spark.sql("select cast(id as string) as value from range(20)")
    rows.write.format("kproto").options(**how, topic=topic).mode("append").save()
    frame = spark.read.format("kproto").options(**how, subscribe=topic).load()
    read = frame.selectExpr("cast(value as string)").collect()
    assert sorted(int(row["value"]) for row in read) == list(range(20))
    forms = kafka.issuer.requested_forms[requests_before:]
    assert len(forms) >= 2  # The write and the read each request at least one token.
    assert all(("scope" in form) == named for form in forms)
    assert_no_secret(" ".join([shown(frame), *capfd.readouterr()]))


def test_a_missing_token_provider_fails_at_load(spark: Any, kafka: Kafka) -> None:
    from pyspark.errors import PySparkException

    how = kafka.by_token(oauth_token_provider="no_such_module:token")
    with pytest.raises(PySparkException, match=r"kafka\.sasl\.oauth\.token\.provider='no_such_module:token'"):
        spark.read.format("kproto").options(**how, subscribe="t").load()


def test_an_issuer_error_names_the_cause_without_the_secret(
    spark: Any, kafka: Kafka, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkException

    how = kafka.by_credentials(WRONG)
    with pytest.raises(PySparkException, match="are client id, secret and scope right") as caught:
        spark.read.format("kproto").options(**how, subscribe="t").load().collect()
    assert_no_secret(" ".join([str(caught.value), *capfd.readouterr()]))


def test_a_stream_continues_after_its_sessions_expire(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    source, target, how = kafka.topic(), kafka.topic(), kafka.options()
    stream = spark.readStream.format("kproto").options(**how, subscribe=source, startingOffsets="earliest")
    sink = stream.load().writeStream.format("kproto").options(**how, topic=target)
    query = started(sink.option("checkpointLocation", str(tmp_path / "c")))
    try:
        end, sent = time.monotonic() + 2 * secured.SESSION_MS / 1000, 0
        while time.monotonic() < end:
            rows = spark.sql(f"select '{sent}' as value")
            rows.write.format("kproto").options(**how, topic=source).mode("append").save()
            sent += 1
        query.processAllAvailable()
    finally:
        query.stop()
    copied = spark.read.format("kproto").options(**how, subscribe=target).load()
    assert sorted(int(bytes(row["value"])) for row in copied.collect()) == list(range(sent))
    assert_no_secret(kept(tmp_path))


def test_no_plan_shows_the_password(spark: Any, kafka: Kafka, capfd: pytest.CaptureFixture[str]) -> None:
    topic, how = kafka.topic(), kafka.options()
    frame = spark.read.format("kproto").options(**how, subscribe=topic).load()
    frame.explain(True)
    stream = spark.readStream.format("kproto").options(**how, subscribe=topic).load()
    stream.explain(True)
    frame.collect()
    frame.write.format("kproto").options(**how, topic=topic).mode("append").save()
    logged = events(spark)
    assert "SparkListenerSQLExecutionStart" in logged
    assert_no_secret("\n".join([shown(frame), shown(stream), logged, *capfd.readouterr()]))
    assert "kproto" in shown(frame)


def test_an_authentication_error_names_the_cause_without_the_password(
    spark: Any, kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkException

    topic, how = kafka.topic(), kafka.options(password=WRONG)
    messages: list[str] = []
    with pytest.raises(PySparkException) as batch:
        spark.read.format("kproto").options(**how, subscribe=topic).load().collect()
    messages.append(str(batch.value))
    rows = spark.sql("select 'x' as value")
    with pytest.raises(PySparkException) as sink:
        rows.write.format("kproto").options(**how, topic=topic).mode("append").save()
    messages.append(str(sink.value))
    with pytest.raises(PySparkException) as once:
        rows.write.format("kproto").options(**how, topic=topic, transactionalIdPrefix="told").mode(
            "append"
        ).save()
    messages.append(str(once.value))
    stream = spark.readStream.format("kproto").options(**how, subscribe=topic).load()
    query = started(stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")))
    with pytest.raises(PySparkException) as streamed:
        query.awaitTermination(120)
    messages.append(str(streamed.value))
    assert [text for text in messages if "rejects user 'alice' with SCRAM-SHA-512" not in text] == []
    assert_no_secret("\n".join([*messages, kept(tmp_path), events(spark), *capfd.readouterr()]))
