"""Assign CPUs to a client and its broker, to measure them as if they ran on two machines.

"apart" assigns half of this machine's CPUs to the broker and the other half to the client. "shared" lets both
use all CPUs. With only two CPUs, shared results depend on the CPU on which each process runs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Cpus = Sequence[int]  # CPU numbers; an empty sequence means all CPUs.
PLACEMENTS = ("apart", "shared")


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cpus",
        type=parse_placements,
        default=list(PLACEMENTS),
        help="CPUs of client and broker: apart, shared, or both separated by a comma (default: apart,shared)",
    )


def parse_placements(text: str) -> list[str]:
    placements = text.split(",")
    if unknown := [placement for placement in placements if placement not in PLACEMENTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; use {' or '.join(PLACEMENTS)}")
    if "apart" in placements and not hasattr(os, "sched_setaffinity"):
        raise argparse.ArgumentTypeError("'apart' needs Linux to assign CPUs to processes; use --cpus shared")
    if "apart" in placements and len(os.sched_getaffinity(0)) < 2:
        raise argparse.ArgumentTypeError(
            "'apart' needs two CPUs, but this process may use only one; use --cpus shared"
        )
    return placements


def split_cpus(placement: str) -> tuple[Cpus, Cpus]:
    """Return the CPUs of the clients and those of the broker."""
    if placement == "shared":
        return (), ()
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[: len(allowed) // 2], allowed[len(allowed) // 2 :]


@contextmanager
def pinned_to(cpus: Cpus) -> Iterator[None]:
    """Restrict this process, and the child processes that it starts in the block, to these CPUs."""
    if not cpus:
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
