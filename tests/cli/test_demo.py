"""`kproto demo` starts the demo with the plan that its arguments describe."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kproto.cli import main

DEFAULTS: dict[str, Any] = {
    "bootstrap": None,
    "topic": "flights",
    "records": None,
    "seed": 0,
    "eager": False,
    "spark": True,
    "seconds": 30.0,
    "picture": Path("kproto-demo.html"),
    "command_config": None,
}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return a list that receives the plan of each demo that a command starts.

    The demo is faked, because a real one needs pandas, Spark and a minute.

    Unless its topic is `good`, the faked demo fails: it reports the fault "a total differs".
    """
    started: list[dict[str, Any]] = []

    def run_demo(plan: dict[str, Any]) -> SimpleNamespace:
        started.append(plan)
        faults = [] if plan["topic"] == "good" else ["a total differs"]
        return SimpleNamespace(checks=["a check"], faults=faults, history=["member 1 joined"])

    script = ModuleType("kproto.demo.script")
    script.__dict__.update(DemoPlan=dict, run_demo=run_demo)
    monkeypatch.setitem(sys.modules, script.__name__, script)
    return started


def test_a_demo_without_arguments_has_the_documented_defaults(
    plans: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["demo"])
    assert plans == [DEFAULTS]
    # The command creates an empty picture file before the demo starts. The faked demo writes nothing to it.
    assert Path("kproto-demo.html").read_bytes() == b""


def test_the_arguments_are_the_plan_of_the_demo(plans: list[dict[str, Any]], tmp_path: Path) -> None:
    config, picture = tmp_path / "client.properties", tmp_path / "p.html"
    config.write_text("security.protocol=PLAINTEXT\n")
    files = ["--command-config", str(config), "--picture", str(picture)]
    words = "--bootstrap kafka:9092 --topic t --records 7 --seed 3 --seconds 1.5 --eager --no-spark"
    main(["demo", *files, *words.split()])
    (plan,) = plans
    assert plan == {
        "bootstrap": "kafka:9092",
        "topic": "t",
        "records": 7,
        "seed": 3,
        "eager": True,
        "spark": False,
        "seconds": 1.5,
        "picture": picture,
        "command_config": config,
    }


def test_a_missing_client_configuration_is_reported_before_the_demo(
    plans: list[dict[str, Any]], tmp_path: Path
) -> None:
    words = ["--bootstrap", "kafka:9092", "--command-config", str(tmp_path / "missing")]
    assert main(["demo", *words]) == 2
    assert plans == []


def test_an_unwritable_picture_is_reported_before_the_demo(
    plans: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--picture", "/nowhere/x.html"]) == 2
    assert plans == []
    message = "--picture='/nowhere/x.html' is not allowed; cannot be written: No such file"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("topic", "code"), [("good", 0), ("flights", 1)])
def test_a_failed_check_fails_the_command(
    plans: list[dict[str, Any]], topic: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--topic", topic, "--picture", str(tmp_path / "p.html")]) == code
    assert capsys.readouterr().out.splitlines() == ["a check", "member 1 joined"]
