"""Put the source into a session, or start a small local session that has it.

    from consumer.spark import session
    spark = session()
    flights = spark.read.format("kproto").option("kafka.bootstrap.servers", "localhost:9092") \\
        .option("subscribe", "flights").load()

In an existing session: ``register(spark)``. Spark's workers import this package by name: it must be
installed there, or on the PYTHONPATH with which the JVM was started. ``addPyFile`` is not enough, it
doesn't reach the process that plans streams.
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

# Python prints what went wrong; the JVM's own account of it is only in the way. At another level than
# `warn`, Spark would say that it changes it.
_QUIET = """\
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

# Spark puts a zipped copy of PySpark first on its workers' path. The installed one has compiled files, and
# imports a second faster: for each of the five processes that a first query starts.
_PYTHON = """\
#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -v '/pyspark\\.zip$' | paste -sd : -)
export PYTHONPATH
exec {python} "$@"
"""

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
# What state of one's own (transformWithState) needs: to be given in the `settings` of `session`.
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_RAW_FILES = "spark.hadoop.fs.file.impl"
DAEMON = "spark.python.daemon.module"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    # About 40 ms off every micro-batch: rows come through a socket file, not through TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # What a worker could not say any more, as nobody listens, `worker_output` leaves out; with
    # true it is printed.
    "spark.python.daemon.killWorkerOnFlushFailure": "false",
    DAEMON: f"{__package__}.daemon",
    # Half of a small micro-batch's time goes into the files of the checkpoint. Plain files are as good on one
    # machine; a cluster's file system needs Spark's own defaults.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    _RAW_FILES: "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def settings_of(version: str) -> dict[str, str]:
    """`SETTINGS` for this version of PySpark: in 4.0 the class that writes checkpoints had another place."""
    moved = ".streaming." if version.startswith("4.0.") else ".streaming.checkpointing."
    return {name: value.replace(".streaming.checkpointing.", moved) for name, value in SETTINGS.items()}


_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LASTING = f"-XX:+UseParallelGC {_ARROW}"
# The first query is done a third sooner; what runs for long never gets as fast.
_QUICK = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_ARROW}"


def launcher(folder: Path) -> Path:
    """This Python as Spark's workers start sooner with it; a file in `folder`."""
    script = folder / "python"
    script.write_text(_PYTHON.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    _launchers.add(str(script))
    return script


_launchers: set[str] = set()


def _scratch() -> Path:
    """A folder for the files of a session; gone with this process."""
    files = Path(tempfile.mkdtemp(prefix="kproto-spark-"))
    atexit.register(shutil.rmtree, files, ignore_errors=True)
    return files


def register(spark: SparkSession) -> None:
    """Make ``format("kproto")`` known to a session; one of ``newSession()`` needs its own. Warns if its
    workers won't be able to import this package. The workers of a local session run this very Python, unless
    PYSPARK_PYTHON or spark.pyspark.python names another one: the python3 of the PATH may well be none that
    has kproto.

    The executors of a cluster are asked, by a job of one task for each of their slots. Raises
    MissingOnExecutors, with what to do; MissingExtra where PySpark has no Python data sources.
    """
    from pyspark.errors import AnalysisException

    try:
        from .source import KprotoDataSource
    except ImportError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        raise MissingExtra("the Spark source", "PySpark 4.2 or newer", "spark") from None

    _choose_python(spark)
    _ask_executors(spark)
    if not _importable(spark):
        cure = f"install kproto, or start Spark with PYTHONPATH={ROOT}"
        warnings.warn(f"Spark's workers can't import {__package__}: {cure}", stacklevel=2)
    try:
        spark.dataSource.register(KprotoDataSource)
    except AnalysisException as error:  # Spark 4.0 has found it by `pyspark_kproto` and takes no other
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def session(
    app: str = "kproto",
    *,
    cores: int = 2,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A quiet local session that has the source; finds a Java, and works from a source checkout.

    `quick` starts sooner and peaks lower: for tests and demos, not for measuring. `settings` are added to,
    or replace, those in `SETTINGS`; a state store of RocksDB is chosen there, not later. What `spark-submit`
    was given beats `SETTINGS` and `cores`, and for a cluster that it names nothing of ours is set. A session
    that is already there is returned as it is, with the source registered, and a warning if it hasn't these
    `settings`. Raises MissingExtra, with what to install.
    """
    try:
        from pyspark import __version__ as version
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("the Spark source", "PySpark", "spark") from None
    spark = SparkSession.getActiveSession()
    if spark is None:
        files = _scratch()
        log4j = files / "log4j2.properties"
        log4j.write_text(_QUIET)
        java = f"{_QUICK if quick else _LASTING} -Dlog4j2.configurationFile={log4j.as_uri()}"
        own = {
            **settings_of(version),
            "spark.driver.extraJavaOptions": java,
            "spark.sql.shuffle.partitions": str(cores),
        }
        if quick:
            # Through TCP, workers that are still there at the end don't complain of it on standard error.
            own["spark.python.unix.domain.socket.enabled"] = "false"
        if "RocksDB" in (settings or {}).get(STATE_STORE, ""):
            del own[_RAW_FILES]  # it asks Hadoop for a file system of another class, and fails
        own = {"spark.master": f"local[{cores}]", **own}
        submitted = _submitted()
        named = "spark.pyspark.python" in {**submitted, **(settings or {})}
        if named or "PYSPARK_PYTHON" in os.environ:
            del own[DAEMON]  # that Python may be one without this package
        if not submitted.get("spark.master", "local").startswith("local"):
            own = {}
        builder = SparkSession.builder.appName(app)
        for name, value in {**own, **submitted, **(settings or {})}.items():
            builder = builder.config(name, value)
        with _environment(files), _without_pandas_warning():
            spark = builder.getOrCreate()
    else:
        _warn_of_others(spark, settings or {})
    with _without_pandas_warning():
        register(spark)
    return spark


def _warn_of_others(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """What was asked of a session that is there already, and has another value."""
    others = [name for name, value in settings.items() if spark.conf.get(name, None) != value]
    if others:
        why = "stop it first, or set with spark.conf.set what may change"
        warnings.warn(f"the session that is there keeps its own {', '.join(others)}: {why}", stacklevel=3)


def _submitted() -> dict[str, str]:
    """What spark-submit was given but for the name; nothing where it didn't start this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    return {name: value for name, value in SparkConf().getAll() if name != "spark.app.name"}


@contextmanager
def _environment(files: Path) -> Generator[None]:
    """What the JVM, and the workers that it starts, inherit; as it was for everybody else."""
    before = dict(os.environ)
    home = java_home(files / "java")
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not _installed():
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(ROOT), *paths]))
    if "PYSPARK_PYTHON" not in os.environ and os.name == "posix":
        # The processes that plan take the driver's.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(launcher(files))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _without_pandas_warning() -> Generator[None]:
    """PySpark warns about pandas 3, which is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _choose_python(spark: SparkSession) -> None:
    """Local workers run this Python, where the user chose none: a venv need not be activated."""
    # None with Spark Connect, whose server is another machine's matter.
    context: Any = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local"):
        return
    if context.pythonExec == "python3":  # PySpark's default
        import pyspark

        quicker = os.name == "posix" and _in_site(Path(pyspark.__file__).parents[1])
        context.pythonExec = str(launcher(_scratch())) if quicker else sys.executable
        return
    found = shutil.which(str(context.pythonExec))
    if found is None or found in _launchers or Path(found).samefile(sys.executable):
        return
    # Nothing of where this Python finds its packages helps that one: only what the JVM hands on.
    asked = subprocess.run(
        [found, "-c", f"import {', '.join(_NEEDED)}"],
        env={**os.environ, "PYTHONPATH": _handed_on(spark)},
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2]
        warnings.warn(
            f"Spark's workers run {found} (PYSPARK_PYTHON or spark.pyspark.python), which can't import "
            f"{__package__}: {why}. Install kproto there, or name {sys.executable}",
            stacklevel=3,
        )


def _ask_executors(spark: SparkSession) -> None:
    """Whether a cluster's executors find all that reading needs, before the first query fails there."""
    context: Any = getattr(spark, "_sc", None)
    if context is None or str(context.master).startswith("local"):
        return
    slots = int(context.defaultParallelism)
    asked = [name for name in _NEEDED for _ in range(slots)]
    # Only functions that every Python has: one of ours would have to be imported there.
    found = context.parallelize(asked, len(asked)).map(find_spec).map(bool).collect()
    missing = dict.fromkeys(name for name, there in zip(asked, found, strict=True) if not there)
    if missing:
        raise MissingOnExecutors(", ".join(missing), str(context.pythonExec))


_NEEDED = ("kproto", "consumer", "numpy", "pyarrow", "msgspec")


class MissingOnExecutors(KprotoError, ImportError):
    """The Python of a cluster's executors lacks a package that reading needs."""

    def __init__(self, packages: str, python: str) -> None:
        super().__init__(packages, python)
        self.packages = packages
        self.python = python

    def __str__(self) -> str:
        return (
            f"Spark's executors run {self.python}, which has no {self.packages}: install kproto[spark] "
            "there, or ship an environment with --archives (docs/how-to/spark.md shows how)"
        )


def _installed() -> bool:
    """Whether this package lies where every process of this Python finds it."""
    return _in_site(ROOT)


def _in_site(folder: Path) -> bool:
    return folder.resolve() in (Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib"))


def _importable(spark: SparkSession) -> bool:
    """Whether the processes that the session's JVM starts will find this package."""
    if _installed() or Path.cwd() == ROOT:
        return True
    jvm = getattr(getattr(spark, "sparkContext", None), "_jvm", None)
    if jvm is None:
        return True  # Spark Connect: its server is another machine's matter
    return any(Path(path).resolve() == ROOT for path in _handed_on(spark).split(os.pathsep) if path)


def _handed_on(spark: Any) -> str:
    """The PYTHONPATH with which the JVM was started, and starts workers."""
    return str(spark.sparkContext._jvm.java.lang.System.getenv("PYTHONPATH") or "")
