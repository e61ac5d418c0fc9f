"""Run libFuzzer on a target, guided by coverage; needs the package atheris.

    python -m tests.fuzz messages -max_total_time=60

The first argument is the name of a target in `targets.TARGETS`. It may be followed by options of libFuzzer
(``-help=1`` lists them), and by directories with further inputs.

The exit code is 0 if no input failed. The fuzzer writes a failing input to a file. Put the input's bytes as
hex into tests/data/fuzz, where the quick tests read them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped, unused-ignore]

with atheris.instrument_imports(include=["kproto"]):
    from tests.fuzz.targets import TARGETS, hurried, seeds


def main(name: str, *arguments: str) -> None:
    if name not in TARGETS:
        sys.exit(f"no target {name}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as scratch, hurried():
        for index, data in enumerate(seeds(TARGETS[name], 300)):
            Path(scratch, f"{index}").write_bytes(data)
        own = [word for word in arguments if not word.startswith("-")]
        options = [word for word in arguments if word.startswith("-")]
        atheris.Setup([sys.argv[0], *options, *own, scratch], TARGETS[name].run)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
