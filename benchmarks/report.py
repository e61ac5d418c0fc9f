"""How all benchmarks measure and tell: interleaved rounds, ratios, machine, tables, goals, picture."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

Taken = Mapping[str, Sequence[float]]  # Seconds per call of every candidate, a figure for each round.


def measure(
    candidates: Mapping[str, Callable[[], object]], rounds: int, least: float = 0.01
) -> dict[str, list[float]]:
    """CPU seconds per call of every candidate in every round, in this thread alone.

    A round runs all candidates, and each next round begins with another one. What takes less than `least`
    seconds is called as often as fills that time.
    """
    names = list(candidates)
    taken: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = time.thread_time()
        call()
        calls[name] = max(1, int(least / max(time.thread_time() - start, 1e-6)))
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call, times = candidates[name], calls[name]
            start = time.thread_time()
            for _ in range(times):
                call()
            taken[name].append((time.thread_time() - start) / times)
    return taken


def ratio(taken: Taken, ours: str, theirs: str) -> float:
    """How many times faster `ours` is: the median of the ratios within a round."""
    return statistics.median(their / our for our, their in zip(taken[ours], taken[theirs], strict=True))


def machine(*packages: str) -> str:
    """A line that says on what was measured, and against which versions."""
    try:
        info = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{model}, {os.cpu_count()} CPUs; Python {platform.python_version()}; {versions}"


def header(*titles: str) -> None:
    """The first two lines of a Markdown table; `row` prints the others."""
    print(f"\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|", flush=True)


def row(*cells: object) -> None:
    """A line of a Markdown table; ratios and other floats with two digits."""
    texts = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def goals(found: Iterable[tuple[str, float, float]]) -> None:
    """(what, ratio, the ratio that it has to reach), and whether it does."""
    header("goal", "reached", "wanted", "")
    for what, reached, wanted in found:
        row(what, reached, wanted, "yes" if reached >= wanted else "NO")


def plot(
    path: Path, title: str, footnote: str, labels: Sequence[str], series: Mapping[str, Sequence[float]]
) -> None:
    """A picture of ratios: a line for each label, a dot for each series, 1 is as fast as the peer.

    A series has one ratio per label; NaN where there is none.
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
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 40) if _between(tick, series)]
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
    print(f"\nThe picture is in {path.name}.")


def _between(tick: float, series: Mapping[str, Sequence[float]]) -> bool:
    known = [ratio for ratios in series.values() for ratio in ratios if ratio == ratio]
    return min(known) / 2 <= tick <= max(known) * 2
