"""The rules of the house, checked on the source itself: who may import whom, and who may touch the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = [
    "errors",
    "error_codes",
    "arguments",
    "java_numbers",
    "patterns",
    "deadlines",
    "wire",
    "messages",
    "records",
    "security",
    "machine",
    "group",
    "transactions",
    "models",
    "broker",
    "testing",
    "scenarios",
]
SHELLS = {
    "cli",
    "__main__",
    "demo",
    "inspect",
}
# What these rooms may use of what people look at.
MAY_SHOW = {"scenarios": {"inspect"}, "testing": {"inspect"}}
WORLD = {"time", "random", "socket", "threading", "subprocess", "asyncio", "multiprocessing", "secrets"}
MAY_TOUCH_THE_WORLD = (
    "broker/server.py",
    "broker/shell.py",
    "broker/socket_connection.py",
    "testing/",
    "cli/",
    "demo/",
)


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The absolute names of all modules that the file imports."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def breaches(path: Path) -> set[str]:
    """What the file imports against the order of the house."""
    room = path.relative_to(ROOT).with_suffix("").parts
    found = set()
    for name in imports(path):
        parts = name.split(".")
        if room[0] == "consumer":
            forbidden = parts[0] == "kproto" and len(parts) > 1 and parts[1] in {"broker", "testing", *SHELLS}
        elif len(room) > 1 and room[1] in ORDER:
            above = ORDER[ORDER.index(room[1]) + 1 :]
            shells = SHELLS - MAY_SHOW.get(room[1], set())
            late = room[1] == "errors" and parts[:2] == [
                "kproto",
                "error_codes",
            ]  # in BrokerError.__str__ only
            forbidden = (
                (parts[0] == "consumer" and room[1] not in ("testing", "scenarios"))
                or (parts[0] == "kproto" and len(parts) > 1 and parts[1] in {*above, *shells})
            ) and not late
        elif len(room) > 1 and room[1] == "inspect":
            forbidden = parts[0] == "consumer" or parts[:2] in (["kproto", "cli"], ["kproto", "demo"])
        else:
            forbidden = False
        if forbidden:
            found.add(name)
    return found


@pytest.mark.parametrize(
    "path", [*modules("kproto"), *modules("consumer")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_room_imports_from_a_room_above_it(path: Path) -> None:
    assert breaches(path) == set()


def test_the_import_order_test_sees_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    bad = tmp_path / "kproto" / "wire" / "frame.py"
    bad.parent.mkdir(parents=True)
    bad.write_text("from ..messages import fetch\nimport consumer\n")
    assert breaches(bad) == {"kproto.messages", "kproto.messages.fetch", "consumer"}


@pytest.mark.parametrize("path", modules("kproto"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_protocol_touches_no_clock_thread_socket_or_random_source(path: Path) -> None:
    room = path.relative_to(ROOT / "kproto").as_posix()
    if room.startswith(MAY_TOUCH_THE_WORLD):
        pytest.skip("this room is where the world is touched")
    assert {name for name in imports(path) if name.split(".")[0] in WORLD} == set()


def test_tests_mirror_the_source() -> None:
    """Every folder of tests that mirrors a room mirrors one that is there."""
    rooms = {p.name for p in (ROOT / "kproto").iterdir() if p.is_dir()} | {
        "consumer",
        "conformance",
        "typing",
        "data",
        "simulation",
        "fuzz",
    }
    folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and not p.name.startswith("_")}
    assert folders <= rooms
