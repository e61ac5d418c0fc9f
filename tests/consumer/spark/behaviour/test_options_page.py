"""The reference page of the options agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from consumer.spark import options
from consumer.spark.options import parse
from kproto.errors import ConfigError

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "spark-options.md"
VERDICTS = {"same", "better", "no effect", "ours", "refused"}
# What an option is refused without.
NEEDED = {"schema.registry.basic.auth.user.info": {"schema.registry.url": "http://localhost:8081"}}


class Row(NamedTuple):
    option: str
    example: str
    verdict: str


def rows() -> list[Row]:
    found: list[Row] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            names, example, verdict, _ = (cell.strip() for cell in line.strip("|").split("|"))
            found += [Row(name, example.strip("`"), verdict) for name in re.findall(r"`([^`]+)`", names)]
    return found


def said(row: Row) -> str:
    """Return the code's error for the option with the page's example, or nothing."""
    beside = {"kafka.bootstrap.servers": "localhost:9092", **NEEDED.get(row.option, {})}
    try:
        parse({**beside, row.option: row.example})
    except ConfigError as error:
        return str(error)
    return ""


def known() -> set[str]:
    kafka = {*options._CLIENT, *options._REFUSED, *options._WITHOUT_EFFECT, "bootstrap.servers"}
    access = ("security.", "ssl.", "sasl.")  # a page of their own
    return set(options._NAMES.values()) | {f"kafka.{name}" for name in kafka if not name.startswith(access)}


def test_every_option_that_the_code_knows_has_a_row_and_no_other_has_one() -> None:
    assert {row.option for row in rows()} == known()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.option)
def test_an_option_is_taken_or_refused_as_its_row_says(row: Row) -> None:
    assert row.verdict in VERDICTS
    assert bool(said(row)) == (row.verdict == "refused"), said(row)


@pytest.mark.parametrize("row", [row for row in rows() if row.verdict == "refused"], ids=lambda r: r.option)
def test_each_rejected_option_is_rejected_with_a_reason(row: Row) -> None:
    assert "no such option" not in said(row)


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.option.startswith("kafka.")], ids=lambda row: row.option
)
def test_only_what_has_no_effect_is_left_out_of_what_the_client_is_told(row: Row) -> None:
    if row.verdict == "no effect" and row.option != "kafka.client.rack":
        assert row.option.removeprefix("kafka.") in options._WITHOUT_EFFECT
    else:
        assert row.option.removeprefix("kafka.") not in options._WITHOUT_EFFECT
