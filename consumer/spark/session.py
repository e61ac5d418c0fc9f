r"""Adds the source to a session, or starts a small local session that has it.

    from consumer.spark import session
    spark = session()
    flights = spark.read.format("kproto").option("kafka.bootstrap.servers", "localhost:9092") \
        .option("subscribe", "flights").load()

For an existing session, call ``register(spark)``. Spark's workers import this package by name. So the package
must be installed on the workers' machines, or be on the PYTHONPATH with which the JVM was started.

``addPyFile`` is not sufficient, because it does not reach the process that plans streams.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kproto.errors import KprotoError, MissingExtra

from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

# The JVM logs only fatal errors, because Python prints all other errors. The root level is `warn`: for any
# other root level, Spark would print that the level was changed.
_LOG4J_PROPERTIES = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
appender.stderr.filter.fatal.type = ThresholdFilter
appender.stderr.filter.fatal.level = fatal
"""

# Remove the zipped copy of PySpark, which Spark puts first on its workers' path. The installed PySpark has
# compiled files, and is imported one second faster. A first query starts five processes that import it.
_WORKER_SCRIPT = """\
#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -v '/pyspark\\.zip$' | paste -sd : -)
export PYTHONPATH
exec {python} "$@"
"""

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
# The state store that arbitrary state (transformWithState) requires. Set it in the `settings` of `session`.
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_FILE_SYSTEM = "spark.hadoop.fs.file.impl"
DAEMON = "spark.python.daemon.module"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    # A Unix socket instead of TCP saves about 40 ms for each micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # With the default, `true`, Spark prints an error when a worker's connection closes. `worker_output`
    # cannot suppress this error.
    "spark.python.daemon.killWorkerOnFlushFailure": "false",
    DAEMON: f"{__package__}.daemon",
    # With Spark's defaults, writing the checkpoint takes half the time of a small micro-batch. These settings
    # write plain files, which are safe on one machine, but not in a cluster's file system.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    _FILE_SYSTEM: "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def settings_of(version: str) -> dict[str, str]:
    """Return `SETTINGS` for a version of PySpark.

    In PySpark 4.0 the class that writes checkpoints is in another package than in later versions.
    """
    package = ".streaming." if version.startswith("4.0.") else ".streaming.checkpointing."
    return {name: value.replace(".streaming.checkpointing.", package) for name, value in SETTINGS.items()}


_ARROW_JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_OPTIONS = f"-XX:+UseParallelGC {_ARROW_JAVA_OPTIONS}"
# The JVM options if `quick` is set. They reduce the time of the first query by a third, but long queries
# never reach full speed.
_QUICK_JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_ARROW_JAVA_OPTIONS}"


def launcher(folder: Path) -> Path:
    """Write to `folder` a script that starts this Python faster as a Spark worker, and return its path."""
    script = folder / "python"
    script.write_text(_WORKER_SCRIPT.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    _launchers.add(str(script))
    return script


_launchers: set[str] = set()  # The paths of all scripts that `launcher` has written.


def _temporary_folder() -> Path:
    """Return a new temporary folder for a session. It is deleted when this process ends."""
    files = Path(tempfile.mkdtemp(prefix="kproto-spark-"))
    atexit.register(shutil.rmtree, files, ignore_errors=True)
    return files


def register(spark: SparkSession) -> None:
    """Make ``format("kproto")`` available in this session.

    A session that ``newSession()`` creates has its own registrations.

    The workers of a local session run the caller's Python, unless PYSPARK_PYTHON or spark.pyspark.python is
    set. The python3 on the PATH may not have kproto. A warning is logged if the workers cannot import this
    package.

    On a cluster, a job with one task for each slot checks the executors. Raises MissingOnExecutors if an
    executor lacks a package. Raises MissingExtra if PySpark is older than 4.0, the first version with Python
    data sources.
    """
    from pyspark.errors import AnalysisException

    try:
        from .source import KprotoDataSource
    except ImportError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        raise MissingExtra("the Spark source", "PySpark 4.2 or newer", "spark") from None

    _choose_worker_python(spark)
    _check_executors(spark)
    if not _is_importable(spark):
        remedy = f"install kproto, or start Spark with PYTHONPATH={ROOT}"
        warnings.warn(f"Spark's workers cannot import {__package__}: {remedy}", stacklevel=2)
    try:
        with _active(spark):
            spark.dataSource.register(KprotoDataSource)
    # Spark 4.0 has already registered the source through the package `pyspark_kproto`, and rejects a second
    # registration under the same name.
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


@contextmanager
def _active(spark: Any) -> Generator[None]:
    """Make `spark` the JVM's active session, and afterwards restore the session that was active.

    Spark rejects a registration if the active session already has a data source of this name, even if the
    registration is for another session. A session of Spark Connect has no JVM, so nothing is changed.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        yield
        return
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def session(
    app: str = "kproto",
    *,
    cores: int = 2,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a local session with this data source registered and a reduced log level.

    The function finds a Java installation, and also works from a source checkout. With `quick`, the session
    starts sooner and uses less memory, but runs slower, which suits tests and demos.

    `settings`, for example a RocksDB state store, override `SETTINGS` and the options of `spark-submit`.

    Options of `spark-submit` take precedence over `SETTINGS` and `cores`. If these options name a cluster,
    kproto adds only `settings`.

    If a session is active, this session is returned unchanged, with the source registered. A warning lists
    the session's settings that differ from `settings`. Raises MissingExtra if PySpark is not installed.
    """
    try:
        from pyspark import __version__ as version
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("the Spark source", "PySpark", "spark") from None
    spark = SparkSession.getActiveSession()
    if spark is None:
        files = _temporary_folder()
        builder = SparkSession.builder.appName(app)
        initial_settings = _initial_settings(version, files, settings or {}, cores=cores, quick=quick)
        for name, value in initial_settings.items():
            builder = builder.config(name, value)
        with _jvm_environment(files), _without_pandas_warning():
            spark = builder.getOrCreate()
    else:
        _warn_of_differing_settings(spark, settings or {})
    with _without_pandas_warning():
        register(spark)
    return spark


def _initial_settings(
    version: str, files: Path, settings: Mapping[str, str], *, cores: int, quick: bool
) -> dict[str, str]:
    """Merge kproto's, spark-submit's and the caller's settings into those of a new session.

    The caller's `settings` take precedence over spark-submit's settings, which take precedence over kproto's.
    On a cluster, kproto has no settings of its own. The configuration of log4j is written to the folder
    `files`.
    """
    submitted = _submitted_settings()
    log4j = files / "log4j2.properties"
    log4j.write_text(_LOG4J_PROPERTIES)
    java_options = _QUICK_JAVA_OPTIONS if quick else _JAVA_OPTIONS
    defaults = {
        "spark.master": f"local[{cores}]",
        **settings_of(version),
        "spark.driver.extraJavaOptions": f"{java_options} -Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.sql.shuffle.partitions": str(cores),
    }
    if quick:
        # Use TCP. With a Unix socket, workers that are still running at the end of the session would print
        # an error.
        defaults["spark.python.unix.domain.socket.enabled"] = "false"
    if "RocksDB" in settings.get(STATE_STORE, ""):
        # The RocksDB state store needs Hadoop's LocalFileSystem, which `_FILE_SYSTEM` in `SETTINGS` replaces.
        del defaults[_FILE_SYSTEM]
    is_python_chosen = "spark.pyspark.python" in {**submitted, **settings}
    if is_python_chosen or "PYSPARK_PYTHON" in os.environ:
        # Keep Spark's own daemon: the Python that the user has chosen may not have this package.
        del defaults[DAEMON]
    is_local = submitted.get("spark.master", "local").startswith("local")
    return {**(defaults if is_local else {}), **submitted, **settings}


def _warn_of_differing_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Warn that an existing session keeps its own values of these settings."""
    differing = [name for name, value in settings.items() if spark.conf.get(name, None) != value]
    if differing:
        reason = "stop it first, or change them with spark.conf.set if Spark allows it"
        warnings.warn(
            f"the existing session keeps its own values of {', '.join(differing)}: {reason}", stacklevel=3
        )


def _submitted_settings() -> dict[str, str]:
    """Return the settings passed to spark-submit, except the name of the application.

    Without spark-submit, the result is empty.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    return {name: value for name, value in SparkConf().getAll() if name != "spark.app.name"}


@contextmanager
def _jvm_environment(files: Path) -> Generator[None]:
    """Set the environment variables that the JVM and its workers inherit, until the `with` block ends.

    The scripts that start Java and Python are written to the folder `files`.
    """
    original_environment = dict(os.environ)
    java = java_home(files / "java")
    if java is not None:
        os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not _is_installed():
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(ROOT), *paths]))
    if "PYSPARK_PYTHON" not in os.environ and os.name == "posix":
        # PYSPARK_DRIVER_PYTHON is set too, because the processes that plan queries run the driver's Python.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(launcher(files))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(original_environment)


@contextmanager
def _without_pandas_warning() -> Generator[None]:
    """Suppress PySpark's warning about pandas 3, because this package does not use pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _choose_worker_python(spark: SparkSession) -> None:
    """Make local workers run this Python, unless the user has chosen another one.

    A warning is logged if the user's Python cannot import this package.

    The virtual environment of this Python need not be activated.
    """
    # With Spark Connect, this process has no SparkContext, and the server chooses the Python of its workers.
    context: Any = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local"):
        return
    if context.pythonExec == "python3":  # PySpark's default
        import pyspark

        is_installed = os.name == "posix" and _is_in_site_packages(Path(pyspark.__file__).parents[1])
        context.pythonExec = str(launcher(_temporary_folder())) if is_installed else sys.executable
        return
    python = shutil.which(str(context.pythonExec))
    if python is None or python in _launchers or Path(python).samefile(sys.executable):
        return
    # Test the import with only the paths that the JVM passes to its workers: this Python may search other
    # paths, too.
    result = subprocess.run(
        [python, "-c", f"import {', '.join(_REQUIRED_PACKAGES)}"],
        env={**os.environ, "PYTHONPATH": _jvm_python_path(spark)},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        reason = result.stderr.strip().rpartition("\n")[2]
        warnings.warn(
            f"Spark's workers run {python} (PYSPARK_PYTHON or spark.pyspark.python), which cannot import "
            f"{__package__}: {reason}. Install kproto there, or set the variable to {sys.executable}",
            stacklevel=3,
        )


def _check_executors(spark: SparkSession) -> None:
    """Raise MissingOnExecutors if an executor of a cluster lacks a required package."""
    context: Any = getattr(spark, "_sc", None)
    if context is None or str(context.master).startswith("local"):
        return
    slots = int(context.defaultParallelism)
    packages = [name for name in _REQUIRED_PACKAGES for _ in range(slots)]
    # The job uses only functions of the standard library, because the executors may lack any other package.
    results = context.parallelize(packages, len(packages)).map(find_spec).map(bool).collect()
    missing = dict.fromkeys(name for name, is_found in zip(packages, results, strict=True) if not is_found)
    if missing:
        raise MissingOnExecutors(", ".join(missing), str(context.pythonExec))


_REQUIRED_PACKAGES = ("kproto", "consumer", "numpy", "pyarrow", "msgspec")


class MissingOnExecutors(KprotoError, ImportError):
    """Raised if the executors' Python lacks a required package."""

    def __init__(self, packages: str, python: str) -> None:
        super().__init__(packages, python)
        self.packages = packages
        self.python = python

    def __str__(self) -> str:
        return (
            f"Spark's executors run {self.python}, which lacks {self.packages}: install kproto[spark] "
            "there, or ship an environment with --archives (docs/how-to/spark.md shows how)"
        )


def _is_installed() -> bool:
    """Return whether every process of this Python interpreter finds the package without a PYTHONPATH."""
    return _is_in_site_packages(ROOT)


def _is_in_site_packages(folder: Path) -> bool:
    """Return whether `folder` is a folder of this Python's installed packages."""
    return folder.resolve() in (Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib"))


def _is_importable(spark: SparkSession) -> bool:
    """Return whether the processes that the session's JVM starts can import this package."""
    if _is_installed() or Path.cwd() == ROOT:
        return True
    jvm = getattr(getattr(spark, "sparkContext", None), "_jvm", None)
    if jvm is None:
        # The environment of a Spark Connect server is unknown; assume that its workers find the package.
        return True
    return any(Path(path).resolve() == ROOT for path in _jvm_python_path(spark).split(os.pathsep) if path)


def _jvm_python_path(spark: Any) -> str:
    """Return the PYTHONPATH that the JVM passes to its workers."""
    return str(spark.sparkContext._jvm.java.lang.System.getenv("PYTHONPATH") or "")
