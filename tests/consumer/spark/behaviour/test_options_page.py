"""The reference page of the options agrees with the code."""

from __future__ import annotations

from consumer.consumer_options import CONSUMER
from consumer.producer_options import PRODUCER
from consumer.spark import options
from consumer.spark.options import parse
from kproto.errors import ConfigError
from tests.bundles import check_each
from tests.consumer.spark.stage import OptionRow, option_rows

VERDICTS = {"same", "better", "no effect", "ours", "refused"}
# Maps an option to the further options that it requires.
NEEDED = {"schema.registry.basic.auth.user.info": {"schema.registry.url": "http://localhost:8081"}}


def error_of(row: OptionRow) -> str:
    """Parse an option with the page's example. Return the error message, or "" if the example is valid."""
    required = {"kafka.bootstrap.servers": "localhost:9092", **NEEDED.get(row.option, {})}
    try:
        parse({**required, row.option: row.example})
    except ConfigError as error:
        return str(error)
    return ""


def known_options() -> set[str]:
    """Return the options that the code accepts, except those for security, which have another page."""
    kafka = {*options._CLIENT, *options._REFUSED, *options._WITHOUT_EFFECT, "bootstrap.servers"}
    security = ("security.", "ssl.", "sasl.")
    return set(options._NAMES.values()) | {f"kafka.{name}" for name in kafka if not name.startswith(security)}


def test_the_page_has_a_row_for_each_known_option_and_no_other_rows() -> None:
    assert {row.option for row in option_rows()} == known_options()


def test_each_option_is_accepted_or_rejected_as_its_row_says() -> None:
    def check(row: OptionRow) -> None:
        assert row.verdict in VERDICTS
        assert bool(error_of(row)) == (row.verdict == "refused"), error_of(row)

    check_each(list(option_rows()), check)


def test_each_rejected_option_is_rejected_with_a_reason() -> None:
    def check(row: OptionRow) -> None:
        assert "the option does not exist" not in error_of(row)
        assert "neither the source nor the sink" not in error_of(row)

    check_each([row for row in option_rows() if row.verdict == "refused"], check)


def test_each_option_of_the_clients_is_passed_on_or_rejected_or_ignored_on_purpose() -> None:
    """Each option of the clients is in one of three tables of `options`.

    If an option were in no table, the source would reject the option as unknown. The error would not name
    the reason why the source does not support it.
    """
    names = {name.replace("_", ".") for name in (*CONSUMER, *PRODUCER)}
    undecided = names - {*options._CLIENT, *options._REFUSED, *options._WITHOUT_EFFECT}
    assert undecided == set(), "in no table of consumer/spark/options.py: _CLIENT, _REFUSED, _WITHOUT_EFFECT"


def test_the_page_and_the_code_agree_on_the_options_without_effect() -> None:
    without_effect = {
        row.option.removeprefix("kafka.")
        for row in option_rows()
        if row.verdict == "no effect" and row.option.startswith("kafka.")
    }
    named = {row.option.removeprefix("kafka.") for row in option_rows()}
    assert without_effect - {"client.rack"} == named & set(options._WITHOUT_EFFECT)
