"""The fixture `kafka` in a separate pytest run, as in a user's project."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproto.broker.server import running
from kproto.errors import IllegalState
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.kafka import AsyncKafka, Kafka
from kproto.testing.secured import secured
from tests.testing.stage import plugin_options, run_pytest

ROOT = str(Path(__file__).resolve().parents[2])
pytest_plugins = ["pytester"]

TESTS = """
import pytest
from kproto.errors import ConfigError, RequestTimedOut

def test_a_group_reads_what_was_produced(kafka):
    kafka.create_topic("flights", 3)
    placed = kafka.produce("flights", "a", b"b", key=b"UA")
    assert [delivery.offset for delivery in placed] == [0, 1]
    assert [record.value for record in kafka.records("flights")] == [b"a", b"b"]
    assert kafka.group("readers").state == "Dead"
    assert kafka.group("readers").total_lag is None
    from kproto import Consumer
    with Consumer(kafka.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        records = []
        while len(records) < 2:
            records += consumer.poll(5)
        consumer.commit()
        group = kafka.group("readers")
        assert group.state == "Stable"
        assert len(group.owners) == 3
        assert group.total_lag == 0
        kafka.produce("flights", "c", key=b"UA")
        assert kafka.group("readers").total_lag == 1
    kafka.wait_until(lambda: kafka.group("readers").state == "Empty")

def test_each_test_has_a_broker_of_its_own(kafka):
    assert kafka.cluster.topics() == {}

def test_a_misspelt_name_creates_no_topic(kafka):
    from kproto import Producer
    from kproto.errors import KprotoError
    with Producer(kafka.bootstrap, allow_auto_create_topics=True, max_block_ms=300) as producer:
        with pytest.raises(KprotoError):
            producer.send("flihgts", b"x").result(10)
    assert kafka.cluster.topics() == {}

def test_the_session_broker_is_shared(kafka_session):
    kafka_session.create_topic("kept")

def test_topics_of_the_session_broker_remain(kafka_session):
    assert "kept" in kafka_session.cluster.topics()

def test_the_lag_of_a_partition_without_a_commit_is_its_size(kafka):
    from kproto import TopicPartition
    kafka.create_topic("flights", 2)
    kafka.produce("flights", "a", partition=0, timestamp=7)
    kafka.produce("flights", "b", "c", partition=1, key="UA")
    kafka.cluster.commit_offsets("readers", {TopicPartition("flights", 0): 1})
    assert sorted(kafka.group("readers").lag.values()) == [0, 2]
    assert kafka.records("flights")[0].timestamp == 7

def test_the_broker_fails_on_request(kafka):
    import pytest
    from kproto.errors import BrokerError
    kafka.create_topic("flights")
    kafka.server.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        kafka.produce("flights", "a")

def test_the_error_of_a_wait_names_the_condition(kafka):
    with pytest.raises(AssertionError, match="the rain did not come true within 0.05 s"):
        kafka.wait_until(lambda: False, 0.05, "the rain")

def test_the_error_of_a_wait_shows_the_last_result(kafka):
    import re
    def asserts():
        assert kafka.group("g").state == "Dead"
    for condition, message in (
        (asserts, "returned None; after assertions it must return True"),
        (lambda: [], re.escape("the last value was []")),
        (lambda: kafka.records("nowhere"), "the last error was UnknownTopic"),
    ):
        with pytest.raises(AssertionError, match=message):
            kafka.wait_until(condition, 0.05)

def test_wait_until_retries_while_a_topic_is_missing(kafka):
    calls = []
    def has_records():
        if len(calls) == 1:
            kafka.create_topic("later")
        calls.append(1)
        return not kafka.records("later")
    kafka.wait_until(has_records)
    assert len(calls) == 2

async def never():
    return False

def test_wrong_arguments_are_named(kafka):
    for call, message in (
        (lambda: kafka.create_topic(["a", "b"]), "name=.*a text"),
        (lambda: kafka.wait_until(lambda: True, timeout="1"), "timeout='1'.*a number"),
        (lambda: kafka.wait_until(True), "condition=True.*a function"),
        (lambda: kafka.wait_until(lambda: False, timeout=float("nan")), "timeout=nan.*seconds"),
        (lambda: kafka.wait_until(never), "condition=.*async_kafka awaits one"),
        (lambda: kafka.produce("flights", "\\ud800"), "value=.*UTF-8"),
        (lambda: kafka.produce("flights", "a", key="\\ud800"), "key=.*UTF-8"),
        (lambda: kafka.records("flights", isolation_level="none"), "isolation_level='none'.*read_committed"),
        (lambda: kafka.records("flights", timeout="1"), "timeout='1'.*a number"),
        (lambda: kafka.records("flights", timeout=float("nan")), "timeout=nan.*seconds"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()

def test_reading_unavailable_records_times_out(kafka):
    kafka.create_topic("flights")
    kafka.produce("flights", "UA 100")
    kafka.server.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", 1_000_000)
    with pytest.raises(RequestTimedOut, match="records: .* 300 ms .*flights-0 is read up to 0 of 1"):
        kafka.records("flights", timeout=0.3)

def test_threads_share_one_cluster(kafka):
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier
    together = Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: (together.wait(), kafka.cluster)[1], range(8)))) == 1

@pytest.mark.parametrize("broker_state", ["down", "silent", "failing"])
def test_a_test_may_leave_its_broker_broken(kafka, broker_state):
    kafka.create_topic("flights")
    if broker_state == "down":
        kafka.server.down()
    elif broker_state == "silent":
        kafka.server.slow(float("inf"))
    else:
        kafka.server.fail("DeleteTopics", "UNKNOWN_SERVER_ERROR", 9)

def test_a_moving_or_loading_coordinator_is_retried(kafka):
    for code in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
        kafka.server.fail("DescribeGroups", code, 2)
        assert kafka.group("g").state == "Dead"

def test_the_async_kafka_is_awaited(async_kafka):
    import asyncio

    async def main():
        await async_kafka.create_topic("t")
        await async_kafka.produce("t", "x")
        assert await async_kafka.cluster.topics() == {"t": 1}
        with pytest.raises(AssertionError, match="the last value was 0"):
            await async_kafka.wait_until(lambda: 0, 0.05)
        return await async_kafka.records("t")

    assert [record.value for record in asyncio.run(main())] == [b"x"]
    assert repr(async_kafka) == f"<AsyncKafka at {async_kafka.bootstrap}>"
"""


def test_the_fixture_serves_a_service(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(TESTS)
    run_pytest(pytester, "-q").assert_outcomes(passed=18)


ON_A_SHARED_BROKER = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_the_topic_has_the_records_of_this_test_only(kafka, number):
    kafka.create_topic("flights")
    kafka.produce("flights", str(number))
    assert [record.value for record in kafka.records("flights")] == [str(number).encode()]

def test_faults(kafka):
    kafka.server.fail("Produce", 6)
"""


@pytest.mark.thorough
def test_workers_that_share_a_broker_take_turns(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(ON_A_SHARED_BROKER)
    with running(settings={"auto.create.topics.enable": "false"}) as server:
        result = run_pytest(pytester, "-p", "xdist", "-q", "-rs", "-n", "3", f"--kafka={server.bootstrap}")
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*faults cannot be injected into a real broker*"])


def test_without_asyncio_the_error_names_it() -> None:
    """Without a running asyncio loop, as in trio, the error says that asyncio is needed."""
    kafka = AsyncKafka(Kafka("127.0.0.1:1"))
    for call in (kafka.wait_until(lambda: True), kafka.records("t"), kafka.create_topic("t")):
        with pytest.raises(IllegalState, match="asyncio event loop, and trio has none"):
            call.send(None)


def test_a_missing_broker_is_an_error(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.setattr("kproto.testing.brokers.why_silent", lambda *_: "this address does not answer")
    pytester.makepyfile("def test(kafka): pass")
    result = pytester.runpytest_inprocess(*plugin_options(), "--kafka=127.0.0.1:1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*this address does not answer*"])


SECURED = """
def test_fixture_and_application_log_in(kafka):
    kafka.create_topic("flights")
    kafka.produce("flights", "a")
    assert [record.value for record in kafka.records("flights")] == [b"a"]
    from kproto import Admin
    with Admin(kafka.bootstrap, **kafka.options()) as cluster:
        assert "flights" in cluster.topics()

def test_topics_of_the_previous_test_are_deleted(kafka):
    assert kafka.cluster.topics() == {}
"""


def properties(folder: Path, password: str) -> str:
    file = folder / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.location={folder / 'ca.pem'}\n"
        f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
    )
    return str(file)


@pytest.fixture(scope="module")
def certificate_files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Create certificates outside of a `pytester` test, which would unload modules that trustme imports."""
    pytest.importorskip("trustme")
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.thorough
@pytest.mark.parametrize("password", ["s3cr3t", "wr0ng"])
def test_a_command_config_logs_in_to_a_given_broker(
    password: str, certificate_files: Certificates, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(SECURED)
    file = properties(Path(certificate_files.ca).parent, password)
    with secured("SASL_SSL", certificate_files, users={"alice": "s3cr3t"}) as broker:
        result = run_pytest(pytester, f"--kafka={broker.bootstrap}", f"--kafka-command-config={file}", "-l")
    if password == "s3cr3t":
        result.assert_outcomes(passed=2)
    else:
        result.assert_outcomes(errors=2)
        result.stdout.fnmatch_lines(["*the credentials of --kafka-command-config*rejects user 'alice'*"])
    assert password not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kafka-command-config=x"], "*is only for --kafka=HOST:PORT, but --kafka is embedded*"),
        (["--kafka=a:1", "--kafka-command-config=/no/such"], "*--kafka-command-config: path='/no/such'*"),
        ([f"--kafka={'9' * 5000}"], "*... (5009 characters) allowed are embedded*"),
        (["--kafka=redpanda"], "*--kafka=redpanda: allowed are embedded, docker, jars or HOST:PORT"),
    ],
)
def test_invalid_broker_options_are_reported(
    options: list[str], message: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_inprocess(*plugin_options(), *options)
    result.stderr.fnmatch_lines([message])


FAILS = """
def test_fails(kafka):
    kafka.create_topic("flights")
    kafka.create_topic("flights")
"""


@pytest.mark.thorough
def test_an_error_is_shown_at_the_calling_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(FAILS)
    output = run_pytest(pytester).stdout.str()
    assert "TOPIC_ALREADY_EXISTS" in output
    assert "plans" not in output
    assert "plans" in run_pytest(pytester, "--full-trace").stdout.str()


WAITS = """
def test_waits(kafka):
    kafka.wait_until(lambda: False, 0.05, "the rain")
"""


@pytest.mark.thorough
def test_a_failed_wait_is_shown_at_the_waiting_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(WAITS)
    output = run_pytest(pytester).stdout.str()
    assert "the rain" in output
    assert "validation.py" not in output
