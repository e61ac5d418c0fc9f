"""The pytest fixture `kafka`, a broker for each test. If kproto is installed, pytest finds this plugin.

    def test_what_was_sent_can_be_read(kafka):
        kafka.create_topic("flights", 3)
        ...                                    # kafka.bootstrap is for the code under test

| fixture | is |
|---|---|
| `kafka` | a new embedded broker for this test, ready in milliseconds |
| `kafka_session` | one broker for the whole session |
| `async_kafka`, `async_kafka_session` | the same with coroutines |
| `kafka_secured` | creates brokers with TLS, SASL and ACLs: see `kproto.testing.secured` |

The same tests run on a real broker with `pytest --kafka=docker` (testcontainers with apache/kafka),
`--kafka=jars` (Java and Maven) or `--kafka=HOST:PORT`. If the broker cannot be started, the tests fail; they
are not skipped.

All tests of the session share the real broker. After each test, the topics that it created with
`create_topic` are deleted. A test that uses `kafka.server`, the embedded broker, is skipped.

`--kafka-command-config=FILE`, Java's client.properties, describes the security of a HOST:PORT broker.
`kafka.options()` returns the same options for the code under test.

The workers of pytest-xdist share a HOST:PORT broker. Their tests with these fixtures run one at a time,
because they may use the same names of topics and groups.

If a test fails with a KprotoError, the traceback ends at the line of the test that made the call.
`--full-trace` shows the whole traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Final

import pytest

from ..errors import KprotoError, without_long_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumer.security import SecurityConfig

    from .certificates import Certificates
    from .kafka import AsyncKafka, Kafka
    from .secured import SecuredKafka

OPTION = "--kafka"
CONFIG: Final = "--kafka-command-config"
# Settings of the embedded broker: short delays, and no automatic creation of topics, to detect misspelt
# names.
SETTINGS: Final = {"group.min.session.timeout.ms": "100", "auto.create.topics.enable": "false"}
ALLOWED = "embedded, docker, jars or HOST:PORT"
# Packages whose frames are cut from the traceback of a KprotoError.
BELOW: Final = frozenset({"kproto", "consumer"}) | sys.stdlib_module_names
RUNNER: Final = frozenset({"_pytest", "pluggy"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kproto", "Kafka brokers for tests (kproto)")
    group.addoption(
        OPTION, default="embedded", metavar="BROKER", help=f"where the fixture kafka runs: {ALLOWED}"
    )
    group.addoption(
        CONFIG,
        metavar="FILE",
        help=f"Java's client.properties with the security options of {OPTION}=HOST:PORT (TLS, SASL)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options. Raises UsageError if one of them is invalid."""
    broker = str(config.getoption(OPTION))
    host, _, port = broker.rpartition(":")
    is_started_here = broker in ("embedded", "docker", "jars")
    if not is_started_here and not (host and port.isdecimal()):
        raise pytest.UsageError(without_long_words(f"{OPTION}={broker}: allowed are {ALLOWED}"))
    if config.getoption(CONFIG) is None:
        return
    if is_started_here:
        raise pytest.UsageError(f"{CONFIG} is only for {OPTION}=HOST:PORT, but {OPTION} is {broker}")
    try:
        _broker_security(config)
    except KprotoError as error:
        raise pytest.UsageError(f"{CONFIG}: {error}") from None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile codecs and import modules in advance if a module with Hypothesis tests uses kproto.

    Without the warm-up, compilation and imports could make a test's first example exceed Hypothesis's
    deadline. Without a deadline, no warm-up is needed.
    """
    if session.config.getoption("collectonly", False):
        return
    # The globals of the modules with Hypothesis tests.
    names: dict[str, Any] = {}
    for item in session.items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            names |= vars(item.module) if isinstance(item, pytest.Function) else {}
    used = [value for value in names.values() if _is_of_kproto(value)]
    if used and _has_deadline():
        from ..wire.message import Message
        from .warm_up import warm_up

        warm_up(value for value in used if isinstance(value, type) and issubclass(value, Message))


def _has_deadline() -> bool:
    from hypothesis import settings

    return settings().deadline is not None


def _is_of_kproto(value: object) -> bool:
    """Return whether `value`, a global of a module, is a module, class or function of kproto."""
    name = (
        getattr(value, "__name__", "") if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    )
    return str(name).partition(".")[0] in ("kproto", "consumer")


def _broker_security(config: pytest.Config) -> SecurityConfig:
    """Return the broker's security options. Raises ConfigError if the file of CONFIG is not valid."""
    from consumer.security import client_properties

    file: str | None = config.getoption(CONFIG)
    return {} if file is None else client_properties(file, "admin")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    if call.excinfo is None or not isinstance(call.excinfo.value, KprotoError):
        return
    if not item.config.getoption("fulltrace", False):
        _cut_traceback(call.excinfo.tb)


def _cut_traceback(trace: TracebackType | None) -> None:
    """End the traceback at the last frame that belongs neither to kproto nor to the standard library.

    If this frame belongs to pytest, kproto was not called by a test, and the traceback stays complete.
    """
    last_caller: TracebackType | None = None
    last_package = ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in BELOW:
            last_caller, last_package = trace, package
        trace = trace.tb_next
    if last_caller is not None and last_package not in RUNNER:
        last_caller.tb_next = None


def _run_kafka(request: pytest.FixtureRequest) -> Generator[Kafka]:
    """Yield a new embedded broker, or the session's real broker if `--kafka` selects one.

    The topics that `Kafka.create_topic` creates on a real broker are deleted afterwards.
    """
    from ..broker.server import running
    from .kafka import Kafka

    if request.config.getoption(OPTION) == "embedded":
        with running(settings=SETTINGS) as server, closing(Kafka(server.bootstrap, server)) as kafka:
            yield kafka  # The topics need not be deleted, because the embedded broker stops after the test.
    else:
        bootstrap: str = request.getfixturevalue("_kafka_bootstrap")
        skip = pytest.skip.Exception
        kafka = Kafka(bootstrap, security=_broker_security(request.config), without_server=skip)
        with request.getfixturevalue("_kafka_lock"), closing(kafka):
            yield kafka
            kafka.clean()


def _real_broker(config: pytest.Config) -> AbstractContextManager[str]:
    """Return a context manager that starts or finds the real broker; its value is HOST:PORT."""
    from . import brokers

    broker = str(config.getoption(OPTION))
    if broker == "docker":
        return brokers.docker()
    return brokers.jars() if broker == "jars" else brokers.named(broker, _broker_security(config))


@pytest.fixture(scope="session")
def _kafka_bootstrap(request: pytest.FixtureRequest) -> Generator[str]:  # pyright: ignore[reportUnusedFunction]
    from .brokers import BrokerMissing

    with ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(_real_broker(request.config))
        # Let each test that uses the fixture fail with one sentence, without a traceback.
        except BrokerMissing as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        yield bootstrap


class _WorkerLock:
    """A reentrant lock that the workers of pytest-xdist share."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._depth = path, 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> None:
        if self._path is not None and not self._depth:
            import fcntl

            self._file = self._path.open("wb")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._file is not None and not self._depth:
            self._file.close()
            self._file = None


@pytest.fixture(scope="session")
def _kafka_lock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _WorkerLock:  # pyright: ignore[reportUnusedFunction]
    """A lock under which the tests of several workers run one at a time.

    Tests of different workers may use the same topic names.
    """
    shared = ":" in str(request.config.getoption(OPTION)) and "PYTEST_XDIST_WORKER" in os.environ
    # The parent folder is shared by all workers of a run.
    return _WorkerLock(tmp_path_factory.getbasetemp().parent / "kafka.lock" if shared else None)


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Generator[Kafka]:
    """One broker for the whole session; see `kproto.testing.kafka.Kafka`."""
    yield from _run_kafka(request)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Generator[Kafka]:
    """A broker that only this test uses; see `kproto.testing.kafka.Kafka`."""
    yield from _run_kafka(request)


@pytest.fixture
def async_kafka(kafka: Kafka) -> AsyncKafka:
    """The fixture `kafka` for tests that run in an event loop."""
    from .kafka import AsyncKafka

    return AsyncKafka(kafka)


@pytest.fixture(scope="session")
def async_kafka_session(kafka_session: Kafka) -> AsyncKafka:
    """The fixture `kafka_session` for tests that run in an event loop."""
    from .kafka import AsyncKafka

    return AsyncKafka(kafka_session)


@pytest.fixture(scope="session")
def _kafka_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:  # pyright: ignore[reportUnusedFunction]
    from .certificates import certificates

    return certificates(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def kafka_secured(_kafka_certificates: Certificates) -> Generator[Callable[..., SecuredKafka]]:
    """A function that creates embedded brokers for this test.

    The fixture takes the arguments of `kproto.testing.secured.secured`: ``kafka_secured("SASL_SSL",
    users={"alice": "secret"}, acls=[...])``.
    """
    from .secured import secured

    with ExitStack() as stack:

        def make(security: Any = "SASL_SSL", **settings: Any) -> SecuredKafka:
            return stack.enter_context(secured(security, _kafka_certificates, **settings))

        yield make
