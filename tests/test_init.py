"""`from kproto import Consumer` works even if the user has a script or package named consumer."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

import consumer
import kproto

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", [name for name in kproto.__all__ if name != "__version__"])
def test_every_listed_name_can_be_imported(name: str) -> None:
    value = getattr(kproto, name)
    assert value is getattr(consumer, name, value)
    assert value.__doc__


def test_an_unknown_name_raises_attribute_error_with_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Konsumer'; help\(kproto\)"):
        kproto.Konsumer  # noqa: B018


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_named_consumer_gets_kprotos_client_and_a_warning(tmp_path: Path) -> None:
    script = tmp_path / "consumer.py"
    script.write_text("from kproto import Consumer\nimport consumer\nprint(consumer.Consumer is Consumer)\n")
    process = python(tmp_path, "consumer.py")
    assert process.stdout == "True\n"
    assert f"{script} has the name of kproto's client, 'consumer'" in process.stderr


def test_an_imported_foreign_consumer_package_is_reported(tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text("mine = 1\n")
    process = python(tmp_path, "-c", "import consumer, kproto; kproto.Consumer")
    assert process.returncode == 1
    assert f"ImportError: {tmp_path / 'consumer.py'} was imported under the name 'consumer'" in process.stderr


def test_the_fixture_reports_a_foreign_consumer_package(tmp_path: Path) -> None:
    package = tmp_path / "consumer" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    process = python(tmp_path, "-c", "import consumer; import kproto.testing.kafka")
    assert f"ImportError: {package} was imported under the name 'consumer'" in process.stderr


def test_importing_kproto_imports_no_submodule() -> None:
    process = python(
        ROOT, "-c", "import sys, kproto; print([n for n in sys.modules if n.startswith('consumer')])"
    )
    assert process.stdout == "[]\n"


@pytest.mark.parametrize("name", ["Consumer", "Producer"])
def test_importing_a_client_imports_only_what_it_needs(name: str) -> None:
    slow = {"asyncio", "crc32c", "dataclasses", "difflib", "email", "importlib.metadata", "numpy", "pyarrow"}
    # logging is imported before the client, because since Python 3.14 it indirectly imports dataclasses,
    # which the test would count.
    code = f"import logging, sys\nbefore = {{*sys.modules}}\nfrom consumer import {name}\n"
    process = python(ROOT, "-c", f"{code}print(sorted({slow!r} & ({{*sys.modules}} - before)))")
    assert process.stdout == "[]\n", process.stderr


def test_the_version_is_defined_once() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["metadata"]["version"] == "attr: kproto.version.__version__"
    assert "project" not in tomllib.loads((ROOT / "pyproject.toml").read_text())
