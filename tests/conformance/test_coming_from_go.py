"""The pages about clients in Go name every option, method and error of consumers in the newest releases."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from consumer.errors import broker_error
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, Retriable
from tests.comparison_pages import code, names, rows
from tests.conformance import judges

pytestmark = pytest.mark.originals

LISTER: Final = Path(__file__).parent / "members" / "exported" / "main.go"
FRANZ_GO: Final = "github.com/twmb/franz-go"
KADM: Final = "github.com/twmb/franz-go/pkg/kadm"


class Exported(NamedTuple):
    """An exported name of a Go package, as the header of members/exported/main.go describes it."""

    kind: str
    owner: str
    name: str


@functools.cache
def source(module: str) -> Path:
    """Return the folder with the source of the module's newest release."""
    go = shutil.which("go") or judges.missing("go")
    command = [go, "mod", "download", "-json", f"{module}@latest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        judges.missing(f"{module}, which go did not download: {done.stdout[-300:]}{done.stderr[-300:]}")
    return Path(json.loads(done.stdout)["Dir"])


@functools.cache
def exported(module: str, package: str = "") -> frozenset[Exported]:
    """Return the exported names of a package of the module."""
    go = shutil.which("go") or judges.missing("go")
    command = [go, "run", str(LISTER), str(source(module) / package)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return frozenset(Exported(*line.split()) for line in printed.splitlines())


def matching(exports: Collection[Exported], kind: str, owner: str, name: str = "") -> set[str]:
    """Return the names of the exports whose kind, owner and name fully match these regular expressions."""
    return {
        export.name
        for export in exports
        if re.fullmatch(kind, export.kind)
        and re.fullmatch(owner, export.owner)
        and re.fullmatch(name or ".*", export.name)
    }


def missing_on(page: str, wanted: set[str], heading: str = "") -> set[str]:
    """Return the names in `wanted` that are missing from the first column of the page's tables."""
    assert len(wanted) > 20
    named = names(page, heading)
    return wanted - named - {part for name in named for part in name.split(".")}


def unknown_on(page: str, exports: Collection[Exported], heading: str = "") -> set[str]:
    """Return the capitalized names of the first column, except those that the library exports."""
    known = {part for export in exports for part in f"{export.owner}.{export.name}".split(".")}
    parts = {part for name in names(page, heading) for part in name.split(".")}
    return {part for part in parts if part[:1].isupper()} - known


def wrong_classes(page: str, heading: str, codes: dict[str, int]) -> list[str]:
    """Return each error whose exception in kproto differs from the page's second column.

    An error code may be missing from the table if its exception is Retriable or BrokerError itself, not a
    subclass.
    """
    classes: dict[tuple[str, str], str] = {}
    for cells in rows(page, heading):
        request = "OffsetCommit" if "commit" in cells[0] else "Fetch"
        classes |= {(name, request): code(cells[1])[0] for name in code(cells[0]) if name in codes}
    for name in codes.keys() - {name for name, _ in classes}:
        own = type(broker_error(codes[name], "Fetch"))
        classes[name, "Fetch"] = own.__name__ if own in (Retriable, BrokerError) else f"a row for {name}"
    return [
        f"{name}: {expected}"
        for (name, request), expected in classes.items()
        if type(broker_error(codes[name], request)).__name__ != expected
    ]


def test_the_page_about_franz_go_has_every_option_method_and_error() -> None:
    kgo, kadm = exported(FRANZ_GO, "pkg/kgo"), exported(KADM)
    wanted = {
        *matching(kgo, "function", "(Consumer|Group|Producer|)Opt"),
        *matching(kgo, "method", "Client|GroupTransactSession|Fetches|Offset"),
        *matching(kgo, "method|field", "Record"),
        *matching(kgo, "type", "interface", "Hook.+"),
        *matching(kgo, "value", "-", "Err.*"),
        *matching(kgo, "type", "struct", "Err.*"),
        *matching(kadm, "method", "Client"),
    }
    assert missing_on("franz-go", wanted - {"MarshalJSON", "String"}) == set()


def test_every_name_on_the_page_about_franz_go_exists() -> None:
    known = exported(FRANZ_GO, "pkg/kgo") | exported(KADM) | exported(FRANZ_GO, "pkg/kerr")
    assert unknown_on("franz-go", known) == set()


def test_the_page_about_franz_go_has_the_class_of_each_error_of_kerr() -> None:
    text = (source(FRANZ_GO) / "pkg/kerr/kerr.go").read_text()
    declared = re.findall(r'(\w+)\s+= &Error\{"\w+", (-?\d+), ', text)
    codes = {name: int(number) for name, number in declared}
    assert len(codes) > 100
    assert set(codes.values()) <= {*ErrorCode}
    assert wrong_classes("franz-go", "Errors of kerr", codes) == []


# The page about sarama ends with tables about another library, sarama-cluster.
SARAMAS_OWN: Final = "^(?!sarama-cluster)"


def test_the_page_about_sarama_has_every_option_method_and_error_of_consumers() -> None:
    exports = exported("github.com/IBM/sarama")
    types = (
        "ConsumerGroup(Session|Claim|Handler)?|(Partition)?Consumer|(Partition)?OffsetManager|"
        "ConsumerInterceptor"
    )
    wanted = {
        *matching(exports, "field", "Config", r"[A-Z]\w*\..*|ClientID|RackID|ChannelBufferSize|Version"),
        *matching(exports, "field", "ConsumerMessage"),
        *matching(exports, "method", types),
        *matching(exports, "value", "-", "Err.*"),
    }
    assert missing_on("sarama", wanted, SARAMAS_OWN) == set()
    assert unknown_on("sarama", exports, SARAMAS_OWN) == set()


def test_the_page_about_sarama_has_the_class_of_each_error_of_a_broker() -> None:
    assert wrong_classes("sarama", "Errors", error_codes("github.com/IBM/sarama", "errors.go")) == []


def test_the_page_about_kafka_go_has_every_option_and_method_of_readers() -> None:
    exports = exported("github.com/segmentio/kafka-go")
    types = "Reader(Config|Stats)?|ConsumerGroup(Config)?|Generation|Message|Dialer"
    wanted = {
        *matching(exports, "field|method", types),
        *matching(exports, "value", "-", "Err.*"),
    }
    assert missing_on("kafka-go", wanted) == set()
    # kafka-go itself does not export these names: EOF is from package io, and the others from package plain.
    assert unknown_on("kafka-go", exports) == {"EOF", "Username", "Password"}


def test_the_page_about_kafka_go_has_the_class_of_each_error_of_a_broker() -> None:
    assert wrong_classes("kafka-go", "Errors", error_codes("github.com/segmentio/kafka-go", "error.go")) == []


def error_codes(module: str, file: str) -> dict[str, int]:
    """Map the name of each constant in the module's file to its error code. Code 0 is left out."""
    text = (source(module) / file).read_text()
    codes = {name: int(number) for name, number in re.findall(r"(?m)^\s+(\w+) +K?Error += (-?\d+)", text)}
    assert len(codes) > 80
    return {name: number for name, number in codes.items() if number}
