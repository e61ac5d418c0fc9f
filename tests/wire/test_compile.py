"""Compiled codecs are held against the interpreter: on the declared messages, and on all of Kafka's."""

from __future__ import annotations

import importlib
import inspect
import linecache
import pkgutil
import traceback
import uuid

import pytest

import kproto.messages
from kproto.wire import Message
from kproto.wire.calls import Uuids
from kproto.wire.compile import decoder, encoder
from tests.wire import properties
from tests.wire.declared import DECLARED, Arrays, Plain, Tagged
from tests.wire.properties import Make

REAL = Make(decoder, encoder)


def all_messages() -> list[type[Message]]:
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(kproto.messages.__path__):
        for name, value in vars(importlib.import_module(f"kproto.messages.{module.name}")).items():
            if inspect.isclass(value) and issubclass(value, Message) and value.__versions__:
                found[name] = value
    return [found[name] for name in sorted(found)]


ALL = [*DECLARED, *all_messages()]
EVERY_VERSION = [
    (cls, version) for cls in ALL for version in range(cls.__versions__.min, cls.__versions__.max + 1)
]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_the_compiled_encoder_writes_what_the_interpreter_writes(cls: type[Message]) -> None:
    properties.encodes_as_the_interpreter(REAL, cls, share=1 if cls in DECLARED else 4)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_the_compiled_decoder_reads_what_the_interpreter_reads(cls: type[Message]) -> None:
    properties.decodes_as_the_interpreter(REAL, cls, share=1 if cls in DECLARED else 4)


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_both_encoders_refuse_the_same(cls: type[Message]) -> None:
    versions = list(range(cls.__versions__.min, cls.__versions__.max + 1))
    properties.refuses_what_the_interpreter_refuses(REAL, cls, versions)


def test_every_version_of_every_message_compiles() -> None:
    for cls, version in EVERY_VERSION:
        encoder(cls, version)
        decoder(cls, version)


def test_a_traceback_shows_the_failing_line_of_generated_code() -> None:
    with pytest.raises(IndexError) as caught:
        decoder(Arrays, 1)(b"", 0)
    assert "n = buf[p]; p += 1" in "".join(traceback.format_exception(caught.value))


def test_generated_source_is_filed_under_a_name_of_its_own() -> None:
    decoder(Plain, 0)
    decoder(Plain, 1)
    names = [name for name in linecache.cache if "Plain v" in name and name.endswith("decode>")]
    assert len(names) == 2


def test_codecs_are_made_at_the_first_use_and_only_then() -> None:
    class Later(Message, versions="0-3"):
        pass

    assert (Later.__encoders__, Later.__decoders__) == ({}, {})
    Later.decode(Later().encode(2), 3)
    assert (list(Later.__encoders__), list(Later.__decoders__)) == ([2], [3])


def test_uuids_made_the_fast_way_are_as_good_as_others() -> None:
    made, plain = Uuids()[bytes(range(16))], uuid.UUID(bytes=bytes(range(16)))
    assert made == plain
    assert hash(made) == hash(plain)
    assert (made.bytes, str(made), made.is_safe) == (plain.bytes, str(plain), plain.is_safe)


def test_the_memory_for_uuids_is_bounded() -> None:
    known = Uuids()
    for number in range(10_000):
        assert known[number.to_bytes(16, "big")].int == number
    assert len(known) <= 4096


def test_tags_with_values_go_to_the_interpreter_and_come_back() -> None:
    message = Tagged(before=1, items=[], after="", number=5, flag=True)
    assert decoder(Tagged, 2)(encoder(Tagged, 2)(message), 0)[0] == message
