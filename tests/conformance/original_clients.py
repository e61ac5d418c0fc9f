"""The original clients as programs controlled through stdin, built once per machine from `members`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kproto.testing.brokers import one_at_a_time
from tests.conformance import judges

SOURCES = Path(__file__).with_name("members")
JAVA = {"java": ("java", judges.KAFKA), "java-2.6": ("java26", "2.6.2")}
GO = {"sarama": "sarama", "sarama-cluster": "saramacluster", "kafka-go": "kafkago"}
BESIDES = {"franz-go": "franzgo"}
# Clients of which kproto has no model. Their programs support only the commands subscribe, commit and close.
PYTHON = {"kafka-python": "kafka", "aiokafka": "aiokafka"}
# The program that runs sarama or franz-go with TLS and SASL. members/secured/main.go documents its commands.
SECURED = "secured"
NAMES = (*JAVA, *GO, "librdkafka")
ALL = (*NAMES, *BESIDES, *PYTHON)


def program(client: str) -> list[str]:
    """Return the command of a client. The caller appends BOOTSTRAP CLIENT_ID GROUP CONFIG_JSON."""
    if client in JAVA:
        return _java(*JAVA[client])
    if client in GO or client in BESIDES:
        return [str(_go((GO | BESIDES)[client]))]
    if client in PYTHON:
        if importlib.util.find_spec(PYTHON[client]) is None:
            judges.missing(client)
        return [sys.executable, str(SOURCES / "python_clients.py"), client]
    if importlib.util.find_spec("confluent_kafka") is None:
        judges.missing("confluent-kafka")
    return [sys.executable, str(SOURCES / "confluent.py")]


def secured() -> str:
    """Return the program of members/secured/main.go, whose source documents the commands."""
    return str(_go(SECURED))


def built(program: Path, executable: Path) -> str:
    """Build a Go program with the modules that `members/secured` requires, and return the executable."""
    secured()  # Downloads the modules.
    order = [shutil.which("go") or judges.missing("go"), "build", "-o", str(executable), str(program)]
    with one_at_a_time(_cache()):
        _run(order, _cache() / "go")
    return str(executable)


def with_modules(name: str, *, module: str = "") -> str:
    """Build a Go program that has its own go.mod.

    `members/go.mod` does not contain the modules that the program requires: they are large, need a C
    compiler, or are other releases of modules that `members/go.mod` requires.

    `module` ("PATH VERSION") replaces a required module, to build the same program with another release.
    """
    compiler = shutil.which("go") or judges.missing("go")
    place, source = _cache() / f"{name} {module.replace('/', '-')}".rstrip().replace(" ", "-"), SOURCES / name
    executable = place / "made"
    with one_at_a_time(_cache()):
        if _stale(executable, *source.iterdir()):
            place.mkdir(exist_ok=True)
            required = (source / "go.mod").read_text().partition("require ")[2].strip()
            for file in source.iterdir():
                text = file.read_text()
                if module:
                    text = text.replace(required, module).replace(required.split()[0], module.split()[0])
                (place / file.name).write_text(text)
            _run([compiler, "mod", "tidy"], place)
            _run([compiler, "build", "-o", str(executable), "."], place)
            executable.touch()
    return str(executable)


def own_tests(compiler: str, module: str, package: str) -> tuple[Path, Path]:
    """Build the tests of a Go package; return the executable and the package's folder.

    `module` contains the package. The go.mod of `members/secured` requires the module.
    """
    secured()  # Downloads the module.
    place = _cache() / "go"
    order = [compiler, "list", "-m", "-f", "{{.Dir}}", module]
    listed = subprocess.run(order, cwd=place, capture_output=True, text=True)
    if listed.returncode:
        judges.missing(f"go list failed: {listed.stderr[-500:]}")
    source = Path(listed.stdout.strip())
    executable = place / "bin" / f"{source.name}-{package.replace('/', '-')}.test"
    with one_at_a_time(_cache()):
        # The executable's name contains the module's version, so another version is built separately.
        if not executable.exists():
            _run([compiler, "test", "-c", "-o", str(executable), f"./{package}"], source)
    return executable, source / package


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "kproto", "originals")


def _stale(product: Path, *sources: Path) -> bool:
    return not product.exists() or product.stat().st_mtime < max(source.stat().st_mtime for source in sources)


def _run(order: list[str], where: Path) -> None:
    done = subprocess.run(order, cwd=where, capture_output=True, text=True)
    if done.returncode:
        judges.missing(f"{order[0]} failed: {(done.stdout + done.stderr)[-500:]}")


def with_java(program: str, client: str) -> list[str]:
    """Return the command that runs a single-file Java program with the kafka-clients release of `client`."""
    return _java(*JAVA[client], program, SOURCES / f"{program}.java")


def _java(folder: str, version: str, program: str = "Member", *sources: Path) -> list[str]:
    command = judges.java()
    jars = judges.jars(
        f"member-{folder}",
        f"org.apache.kafka:kafka-clients:{version}",
        "com.fasterxml.jackson.core:jackson-databind:2.19.2",
        "org.slf4j:slf4j-nop:1.7.36",
    )
    place = _cache() / folder
    sources = sources or (SOURCES / "Member.java", SOURCES / folder / "Api.java")
    class_file = place / f"{program}.class"
    with one_at_a_time(_cache()):
        if _stale(class_file, *sources):
            compiler = shutil.which("javac") or judges.missing("javac")
            place.mkdir(exist_ok=True)
            _run([compiler, "-d", str(place), "-cp", jars, *map(str, sources)], place)
            class_file.touch()
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [command, *small, "-cp", f"{place}:{jars}", program]


def _go(folder: str) -> Path:
    compiler = shutil.which("go")
    if compiler is None:
        judges.missing("go")
    place = _cache() / "go"
    executable = place / "bin" / folder
    source = SOURCES / folder / "main.go"
    with one_at_a_time(_cache()):
        if _stale(executable, source):
            (place / folder).mkdir(parents=True, exist_ok=True)
            (place / "bin").mkdir(exist_ok=True)
            for name in (*GO.values(), *BESIDES.values(), SECURED):
                (place / name).mkdir(exist_ok=True)
                shutil.copy(SOURCES / name / "main.go", place / name / "main.go")
            shutil.copy(SOURCES / "go.mod", place / "go.mod")
            _run([compiler, "mod", "tidy"], place)
            _run([compiler, "build", "-o", str(executable), f"./{folder}"], place)
            executable.touch()
    return executable
