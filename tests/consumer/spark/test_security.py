"""Queries authenticate with kafka.security.protocol, kafka.ssl.* and kafka.sasl.*, and hide the secrets."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Producer
from consumer.security import security_options
from consumer.spark.offset_reader import OffsetReader
from consumer.spark.options import Options, parse
from consumer.spark.ranges import Range
from consumer.spark.security import SecurityProperties, kafka_option_names_in_errors
from kproto.broker.server import running
from kproto.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KprotoError, RequestTimedOut
from kproto.testing.certificates import Certificates, certificates

PASSWORD = "s3cr3t-of-alice"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{MODULE} required username="alice" password="{PASSWORD}";'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for the broker and its clients."""
    pytest.importorskip("trustme")
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def bootstrap(files: Certificates) -> Iterator[str]:
    """Start a broker that requires TLS and SCRAM, and yield its address."""
    with running(
        {"t": 1}, listen=["SASL_SSL://127.0.0.1:0"], users={"alice": PASSWORD}, tls=files.context()
    ) as server:
        yield server.bootstrap


def given(bootstrap: str, files: Certificates, **more: str) -> dict[str, str]:
    """Return options under the names of Spark's own source. In names of `more`, `_` stands for a dot."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": files.ca,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_plaintext_is_the_default_protocol(files: Certificates) -> None:
    plain = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "plaintext"}
    assert parse(plain).access == SecurityProperties() == parse({"kafka.bootstrap.servers": "a:1"}).access


def test_the_driver_authenticates(bootstrap: str, files: Certificates) -> None:
    logs = OffsetReader(parse(given(bootstrap, files)))
    assert set(logs.view().ends.values()) == {0}
    logs.close()


def test_an_executor_authenticates_with_the_pickled_options(bootstrap: str, files: Certificates) -> None:
    rows = pytest.importorskip("consumer.spark.partition_reader")
    schema = pytest.importorskip("consumer.spark.schema")
    options = parse(given(bootstrap, files))
    with Producer(bootstrap, **options.access.options) as producer:
        producer.send("t", b"flown").result(30)
    sent: Options = pickle.loads(pickle.dumps(options))
    slice_ = pytest.importorskip("consumer.spark.slices").Slice(Range("t", 0, 0, 1))
    batches: list[Any] = list(rows.read(slice_, schema.full_schema(sent), sent))
    assert batches[0].column("value").to_pylist() == [b"flown"]


def test_a_sink_authenticates(bootstrap: str, files: Certificates) -> None:
    pa = pytest.importorskip("pyarrow")
    types = pytest.importorskip("pyspark.sql.types")
    writer = pytest.importorskip("consumer.spark.writer")
    settings = given(bootstrap, files)
    del settings["subscribe"]
    options = parse({**settings, "topic": "t"})
    rows = writer.RowWriter(types.StructType([types.StructField("value", types.StringType())]), options)
    rows.write(iter([pa.RecordBatch.from_pydict({"value": ["written"]})]))
    with Admin(bootstrap, **options.access.options) as cluster:
        ends = cluster.list_offsets(dict.fromkeys(cluster.partitions("t"), "latest"))
    assert [end.offset for end in ends.values()] == [1]


def test_a_token_provider_is_pickled_by_its_name(
    files: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_tokens.py").write_text("def token():\n    return 'abc'\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = given("a:1", files, kafka_sasl_mechanism="OAUTHBEARER")
    del settings["kafka.sasl.jaas.config"]
    options = parse({**settings, "kafka.sasl.oauth.token.provider": "our_tokens:token"})
    sent: Options = pickle.loads(pickle.dumps(options))
    tokens = security_options(sent.access.options).tokens
    assert tokens is not None
    assert tokens.blocking().value.reveal() == "abc"
    with pytest.raises(
        ConfigError, match=r"kafka\.sasl\.oauth\.token\.provider='our_token:token' is not allowed"
    ):
        parse({**settings, "kafka.sasl.oauth.token.provider": "our_token:token"})
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.oauth\.token\.provider=None is not allowed"):
        parse(settings)


def test_another_password_uses_another_connection(files: Certificates) -> None:
    first, second = parse(given("a:1", files)), parse(given("a:1", files, kafka_sasl_jaas_config=JAAS + " "))
    assert first.key == parse(given("a:1", files)).key
    assert first.key != second.key


def test_a_wrong_password_raises_at_once_and_is_shown_nowhere(
    bootstrap: str, files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = JAAS.replace(PASSWORD, "wr0ng-of-alice")
    options = parse(given(bootstrap, files, kafka_sasl_jaas_config=wrong))
    logs = OffsetReader(options)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(AuthenticationFailed, match="rejects user 'alice'") as e,
    ):
        logs.view()
    logs.close()
    for text in (caplog.text, str(e.value), repr(e.value), repr(options), str(options), f"{options.access}"):
        assert "wr0ng" not in text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sasl.mechanism", "CRAM", "kafka.sasl.mechanism='CRAM' is not allowed; allowed: PLAIN"),
        ("sasl.jaas.config", f"Login required password={PASSWORD}", "kafka.sasl.jaas.config='[hidden]'"),
        ("sasl.jaas.config", "", "kafka.sasl.jaas.config"),
        (
            "sals.jaas.config",
            JAAS,
            "kafka.sals.jaas.config='[hidden]' is not allowed; neither the source nor",
        ),
        ("sasl.passwrod", PASSWORD, "kafka.sasl.passwrod='[hidden]'"),
        ("ssl.truststore.location", "/no/such/file", "kafka.ssl.truststore.location='/no/such/file'"),
        ("ssl.truststore.type", "JKS", "kafka.ssl.truststore.type='JKS' is not allowed; PEM or PKCS12"),
        ("ssl.check.hostname", "maybe", "kafka.ssl.endpoint.identification.algorithm='maybe'"),
        ("security.protocol", "PLAINTEXT", "kafka.sasl"),
    ],
)
def test_a_wrong_security_option_raises_at_load_under_its_given_name(
    files: Certificates, name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as e:
        parse(given("a:1", files, **{f"kafka.{name}": value}))
    assert message in str(e.value)
    assert PASSWORD not in repr(e.value)


def test_a_secret_without_its_prefix_is_rejected_and_not_shown(files: Certificates) -> None:
    with pytest.raises(
        ConfigError, match=r"sasl.jaas.config='\[hidden\]' is not allowed; the option does not exist"
    ):
        parse({**given("a:1", files), "sasl.jaas.config": JAAS})


def test_a_trust_store_in_pem_text_is_pickled_with_the_options(files: Certificates) -> None:
    settings = given("a:1", files)
    del settings["kafka.ssl.truststore.location"], settings["kafka.ssl.truststore.type"]
    options = parse({**settings, "kafka.ssl.truststore.certificates": Path(files.ca).read_text()})
    sent: Options = pickle.loads(pickle.dumps(options))
    assert sent == options
    assert sent.access.options["ssl_cafile"] == Path(files.ca).read_text().strip()


def test_login_errors_name_kafkas_options() -> None:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError) as e:
        parse({"kafka.bootstrap.servers": "a:1", **login})
    assert str(e.value).startswith("kafka.sasl.jaas.config=None")
    assert "kafka.sasl.mechanism PLAIN" in str(e.value)
    assert "sasl_" not in str(e.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            AuthenticationFailed("a:1", "are sasl_username and sasl_password right?"),
            "are the username and the password in kafka.sasl.jaas.config right?",
        ),
        (
            ConnectionFailed("a:1", "does this listener want SASL (security_protocol)?"),
            "does this listener want SASL (kafka.security.protocol)?",
        ),
        (
            RequestTimedOut("Metadata", 5, "set ssl_certfile and ssl_keyfile"),
            "set kafka.ssl.keystore.location and kafka.ssl.keystore.key",
        ),
        (
            AuthenticationFailed("a:1", "or set ssl_check_hostname=False if you know why"),
            "or set kafka.ssl.endpoint.identification.algorithm to an empty string if you know why",
        ),
    ],
)
def test_authentication_errors_name_the_querys_options(error: Any, message: str) -> None:
    error.add_note("It was tried.")
    with pytest.raises(KprotoError) as caught, kafka_option_names_in_errors():
        raise error
    reworded: Any = caught.value
    assert type(reworded) is type(error)
    assert reworded.detail == message
    assert str(reworded) == str(error).replace(error.detail, message)
    assert reworded.__notes__ == ["It was tried."]


def test_other_errors_are_not_changed() -> None:
    error = ConfigError("sasl_username", "x", "y")
    with pytest.raises(ConfigError) as caught, kafka_option_names_in_errors():
        raise error
    assert caught.value is error


def test_an_error_for_several_brokers_keeps_each_reason() -> None:
    reasons = {"a:1": "does this listener want SASL (security_protocol)?", "b:1": "connection refused"}
    with pytest.raises(ConnectionFailed) as caught, kafka_option_names_in_errors():
        raise ConnectionFailed.everywhere(reasons)
    assert caught.value.reasons == {
        **reasons,
        "a:1": "does this listener want SASL (kafka.security.protocol)?",
    }


@pytest.mark.parametrize(
    ("module", "hidden"),
    [
        ("pyspark.daemon", "1"),
        ("pyspark.sql.streaming.python_streaming_source_runner", "1"),
        ("pytest", None),
    ],
)
@pytest.mark.parametrize("error", [ConfigError("a", "b", "c"), ZeroDivisionError()])
def test_only_spark_processes_hide_tracebacks_and_only_of_kproto_errors(
    monkeypatch: pytest.MonkeyPatch, module: str, hidden: str | None, error: Exception
) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(module, None))
    with pytest.raises(type(error)), kafka_option_names_in_errors():
        raise error
    value = os.environ.pop("SPARK_HIDE_TRACEBACK", None)
    assert value == (hidden if isinstance(error, KprotoError) else None)


MISTAKES: dict[str, dict[str, str]] = {
    "an unknown option": {"typo": "1"},
    "an unknown Kafka option": {"kafka.typo": "1"},
    "a misspelt secret": {"kafka.sasl.jaas.confg": JAAS},
    "a wrong JAAS configuration": {"kafka.sasl.jaas.config": JAAS.rstrip('";')},
    "a missing file": {
        "kafka.ssl.truststore.location": "/no/such",
        "kafka.ssl.truststore.password": PASSWORD,
    },
    "a login in an address": {"kafka.bootstrap.servers": f"alice:{PASSWORD}@a:1"},
    "a login in the registry's address": {"schema.registry.url": f"http://u:{PASSWORD}@a:1"},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_local_variable_in_the_traceback_of_a_wrong_option_shows_a_secret(mistake: str) -> None:
    """The frames of the data source's caller show no secret, either: in Spark's processes, such frames have
    the options in local variables.
    """
    pytest.importorskip("pyspark")
    from consumer.spark.source import KprotoDataSource

    options = {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "schema.registry.basic.auth.user.info": f"u:{PASSWORD}",
        **MISTAKES[mistake],
    }
    with pytest.raises(ConfigError) as caught:
        KprotoDataSource(options)
    shown = [str(caught.value), repr(caught.value), repr(options)]
    error: BaseException | None = caught.value
    while error is not None:
        text = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown += [str(frame.locals) for frame in text.stack]
        error = error.__cause__ or error.__context__
    assert "options" in "".join(shown)
    assert PASSWORD not in "".join(shown)


def test_the_options_of_a_source_keep_their_secrets_in_a_pickle() -> None:
    pytest.importorskip("pyspark")
    from consumer.spark.source import KprotoDataSource

    options = {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
    }
    source = pickle.loads(pickle.dumps(KprotoDataSource(options)))
    assert source.options["kafka.sasl.jaas.config"] == JAAS
    assert source.parsed.access.options["sasl_password"] == PASSWORD
    assert PASSWORD not in repr(source.options)
