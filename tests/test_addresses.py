"""An address that `address_text` returns is accepted as `bootstrap_servers`."""

from __future__ import annotations

import pytest

from consumer.addresses import addresses
from kproto.addresses import address_text, bracketed


@pytest.mark.parametrize(
    ("host", "text"),
    [("kafka", "kafka:9092"), ("10.0.0.7", "10.0.0.7:9092"), ("fe80::1", "[fe80::1]:9092")],
)
def test_only_an_ipv6_host_is_in_brackets(host: str, text: str) -> None:
    assert address_text(host, 9092) == text
    assert text == f"{bracketed(host)}:9092"
    assert addresses(text) == [(host, 9092)]
