"""The model of librdkafka describes error codes with the texts of the librdkafka in confluent-kafka."""

from __future__ import annotations

import pytest

from kproto.models.librdkafka.err_texts import err2str

confluent_kafka = pytest.importorskip("confluent_kafka")


def test_the_texts_of_error_codes_are_those_of_librdkafka() -> None:
    # The model uses the texts of librdkafka 2.16, which knows no error code above 133.
    codes = [*range(-1, 134)]
    assert {code: err2str(code) for code in codes} == {
        code: confluent_kafka.KafkaError(code).str() for code in codes
    }
