"""err2str returns librdkafka's text for an error.

`test_librdkafka_texts.py` compares the texts with the library's.
"""

from __future__ import annotations

import pytest

from kproto.models.librdkafka.err_texts import err2str


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (30, "Broker: Group authorization failed"),
        (3, "Broker: Unknown topic or partition"),
        (-1, "Unknown broker error"),
        (0, "Success"),
        (-195, "Local: Broker transport failure"),
        (1_000, "Err-1000?"),
    ],
)
def test_an_error_code_has_the_text_of_rd_kafka_err2str(code: int, text: str) -> None:
    assert err2str(code) == text
