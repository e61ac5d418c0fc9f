"""Who runs on which CPUs: a client and its broker on one machine, as if they were on two.

A broker is another machine at work. "apart" gives it one half of this machine's CPUs and the client the
other. "shared" lets both have all of them: where those are two, that tells for a good part who is on whose.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Cpus = Sequence[int]
WAYS = ("apart", "shared")


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cpus",
        type=ways,
        default=list(WAYS),
        help="who has which CPUs: apart, shared, or both with a comma",
    )


def ways(given: str) -> list[str]:
    found = given.split(",")
    if wrong := [way for way in found if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(WAYS)}")
    if "apart" in found and not hasattr(os, "sched_setaffinity"):
        raise argparse.ArgumentTypeError("'apart' needs Linux, where a process can be told its CPUs")
    if "apart" in found and len(os.sched_getaffinity(0)) < 2:
        raise argparse.ArgumentTypeError("'apart' needs two CPUs, and this process may have one")
    return found


def halves(way: str) -> tuple[Cpus, Cpus]:
    """The CPUs of the clients, and those of the broker; () where all may have all."""
    if way == "shared":
        return (), ()
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[: len(allowed) // 2], allowed[len(allowed) // 2 :]


@contextmanager
def started_on(cpus: Cpus) -> Iterator[None]:
    """What is started in here keeps to these CPUs."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
