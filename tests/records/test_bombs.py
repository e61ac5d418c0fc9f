"""Bytes that say they are huge are errors soon, and small ones; what compresses well is read all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cramjam")
pytest.importorskip("pyarrow")

from kproto.records import Record, encode_batch
from kproto.records.compression import CODECS
from tests.records.bombs import ENTRANCES, MB, bombs

PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
ROOT = Path(__file__).parents[2]
HARMLESS = {"the size of a batch"}  # a cut last batch isn't there


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bombs")
    for name, data in bombs():
        (found / name).write_bytes(data)
    return found


@pytest.fixture(scope="module", params=["rows", "cli"] if PROFILE == "quick" else ENTRANCES)
def seen(request: pytest.FixtureRequest, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a fresh process and its forks met when they read the bombs by this entrance."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.records.bombs", request.param, str(directory)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("cwd"),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return json.loads(done.stdout)


def test_every_bomb_is_an_error(seen: Any) -> None:
    assert {name for name, (outcome, _, _) in seen.items() if outcome == "read"} == HARMLESS


def test_every_bomb_is_an_error_within_100_ms(seen: Any) -> None:
    assert {name: taken for name, (_, taken, _) in seen.items() if taken > 100} == {}


def test_no_bomb_takes_50_mb(seen: Any) -> None:
    assert {name: grown // MB for name, (_, _, grown) in seen.items() if grown > 50 * MB} == {}


@pytest.mark.parametrize(
    ("codec", "entrance"), [*((codec, "rows") for codec in CODECS), *(("gzip", other) for other in ENTRANCES)]
)
def test_ten_megabytes_of_zeros_are_read(
    codec: str, entrance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ENTRANCES[entrance](encode_batch([Record(0, 0, None, bytes(10 * MB))], compression=codec))
