"""The fuzzer's targets pass with seeds, mutated seeds and earlier findings.

With the profile `ci`, the inputs are the same in every run, so only a change of the code can make the test
fail.

With the profile `soak`, the fuzzer tries new inputs in every run, for five minutes per target.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("cramjam")
pytest.importorskip("pyarrow")

from tests.conformance import judges
from tests.fuzz.targets import TARGETS, hurried, seeds
from tests.seeds import FIRST

ROOT = Path(__file__).parents[2]
FOUND = sorted((ROOT / "tests" / "data" / "fuzz").glob("*.hex"))
PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
# The number of inputs of each target in the profile ci. Each target takes about 15 s.
RUNS = {"messages": 7_000, "frames": 5_000, "records": 5_000, "sasl": 100_000, "compression": 8_000}
# With these settings libFuzzer generates the same inputs in every run. It does not reload its corpus every
# second, and ignores the operands of comparisons, which depend on addresses. PYTHONHASHSEED fixes the order
# of sets.
REPEATABLE = ("-max_total_time=300", "-reload=0", "-use_cmp=0")
ENVIRONMENT = {"PYTHONHASHSEED": "0"}


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of libFuzzer. Seed 0 becomes 1, because for 0 libFuzzer chooses a random seed."""
    seed, common = f"-seed={FIRST or 1}", ("-timeout=30", "-artifact_prefix=found-")
    if PROFILE == "soak":
        return ("-max_total_time=300", seed, *common)
    return (f"-runs={RUNS[name]}", *REPEATABLE, seed, *common)


@pytest.mark.parametrize("name", TARGETS)
def test_the_target_passes_on_seeds_and_their_mutations(name: str) -> None:
    target, dice = TARGETS[name], random.Random(0)
    with hurried():
        for seed in seeds(target, 15 if PROFILE == "quick" else 40):
            target.run(seed)
            for _ in range(10):
                changed = bytearray(seed or b"\0")
                for _ in range(dice.randint(1, 2)):
                    place = dice.randrange(len(changed) if dice.random() < 0.5 else min(len(changed), 80))
                    changed[place] = dice.choice(
                        (0, 1, 127, 128, 255, changed[place] ^ 1, changed[place] + 1 & 255)
                    )
                target.run(bytes(changed))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_inputs_found_by_the_fuzzer_pass(path: Path) -> None:
    """A file is named TARGET-DESCRIPTION.hex. Lines that start with # describe the finding."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    with hurried():
        TARGETS[path.stem.partition("-")[0]].run(bytes.fromhex("".join(lines)))


@pytest.mark.skipif(PROFILE == "quick", reason="a run of the fuzzer: set KPROTO_PROFILE=ci or soak")
@pytest.mark.parametrize("name", TARGETS)
def test_the_fuzzer_finds_nothing(name: str, tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        judges.missing("atheris")
    options = options_of(name)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )
    crashes = [f"{file.name}: {file.read_bytes().hex()}" for file in tmp_path.glob("found-*")]
    repeat = f"PYTHONHASHSEED=0 python -m tests.fuzz {name} {' '.join(options)}"
    assert (done.returncode, crashes) == (0, []), f"{done.stderr[-3000:]}\n{repeat} repeats it"
