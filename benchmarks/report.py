"""Measure candidates in alternating rounds, and print tables, ratios and goals or draw a chart."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

Seconds = tuple[float, float]  # Wall time and CPU time.
Timings = Mapping[str, Sequence[float]]  # Candidate -> seconds per call, one value for each round.


def measure(
    candidates: Mapping[str, Callable[[], object]], rounds: int, min_seconds: float = 0.01
) -> dict[str, list[float]]:
    """Return the CPU seconds of this thread per call: one value per candidate and round.

    Each round runs all candidates and starts with a different one. A candidate that takes less than
    `min_seconds` is called repeatedly for that time.
    """
    names = list(candidates)
    timings: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = time.thread_time()
        call()
        calls[name] = max(1, int(min_seconds / max(time.thread_time() - start, 1e-6)))
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call = candidates[name]
            start = time.thread_time()
            for _ in range(calls[name]):
                call()
            timings[name].append((time.thread_time() - start) / calls[name])
    return timings


def ratio(timings: Timings, ours: str, theirs: str) -> float:
    """Return how many times faster `ours` is: the median of the ratios of the rounds."""
    pairs = zip(timings[ours], timings[theirs], strict=True)
    return statistics.median(their_time / our_time for our_time, their_time in pairs)


def machine(*packages: str) -> str:
    """Return one line with the processor and the versions of Python and of these packages."""
    try:
        info = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{model}, {os.cpu_count()} CPUs; Python {platform.python_version()}; {versions}"


def header(*titles: str) -> None:
    """Print the first two lines of a Markdown table; `row` prints the others."""
    print(f"\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|", flush=True)


def row(*cells: object) -> None:
    """Print one line of a Markdown table, floats with two decimals."""
    texts = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def goals(results: Iterable[tuple[str, float, float]]) -> None:
    """Print a table of goals: a label, the measured ratio, and the ratio that it has to reach."""
    header("goal", "measured", "required", "reached")
    for label, measured, required in results:
        row(label, measured, required, "yes" if measured >= required else "NO")


def plot(
    path: Path, title: str, footnote: str, labels: Sequence[str], series: Mapping[str, Sequence[float]]
) -> None:
    """Draw ratios as an SVG chart: one line per label, one mark per series.

    A series has one ratio per label, or NaN where nothing was measured. 1 means as fast as the peer.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = title
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(9, 1.6 + 0.24 * len(labels)))
    for (name, ratios), marker in zip(series.items(), "osD^vP*X", strict=False):
        axes.plot(ratios, range(len(labels)), marker, label=name, markersize=6, alpha=0.85)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 40) if _is_in_range(tick, series)]
    axes.set_xticks(ticks, minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(alpha=0.3)
    axes.set_title(title, loc="left", pad=22)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8, frameon=False)
    axes.set_xlabel(f"times as fast as the peer (right is better)\n{footnote}", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(f"\nThe chart is in {path}.")


def _is_in_range(tick: float, series: Mapping[str, Sequence[float]]) -> bool:
    measured = [value for ratios in series.values() for value in ratios if not math.isnan(value)]
    return min(measured) / 2 <= tick <= max(measured) * 2
