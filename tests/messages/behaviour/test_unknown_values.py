"""Unknown numbers, such as error codes of newer brokers, are decoded and encoded unchanged.

tests/conformance/test_java_frames.py checks that Kafka's classes keep unknown numbers, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kproto.messages import index
from kproto.messages.json_form import from_json, to_json
from kproto.testing.strategies import INTEGERS
from tests.bundles import bundles, check_each
from tests.wire.samples import all_places, sample


@pytest.mark.parametrize("names", bundles(index.names()))
@pytest.mark.parametrize("extreme", [0, 1], ids=["lowest", "highest"])
def test_any_number_of_any_field_survives_bytes_and_json(names: Sequence[str], extreme: int) -> None:
    def check(name: str) -> None:
        cls = index.message_class(name)
        for version in {cls.__versions__.min, cls.__versions__.max}:
            message: Any = sample(cls, version)
            for place in all_places(message, version):
                if place.is_present and getattr(place.kind, "name", "") in INTEGERS:
                    place.set(INTEGERS[place.kind.name][extreme])
            assert cls.decode(message.encode(version), version) == message, version
            assert from_json(cls, json.loads(json.dumps(to_json(message, version))), version) == message

    check_each(names, check)
