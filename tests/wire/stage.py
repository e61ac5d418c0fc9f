"""Helpers for the wire tests: every message, the real codecs, and mutants (copies with one mistake)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kproto.messages
from kproto.wire import Message, decoder_source, encoder_source, layouts, source
from kproto.wire import compiler as compile_module
from kproto.wire.compiler import decoder, encoder
from tests.wire.declarations import DECLARED
from tests.wire.properties import Make

# The modules of the compiler in import order: a module comes after those that it imports.
MODULES = (layouts, source, decoder_source, encoder_source, compile_module)
REAL = Make(decoder, encoder)


def all_messages() -> list[type[Message]]:
    messages: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(kproto.messages.__path__):
        for name, value in vars(importlib.import_module(f"kproto.messages.{module.name}")).items():
            if inspect.isclass(value) and issubclass(value, Message) and value.__versions__:
                messages[name] = value
    return [messages[name] for name in sorted(messages)]


ALL = [*DECLARED, *all_messages()]
EVERY_VERSION = [
    (cls, version) for cls in ALL for version in range(cls.__versions__.min, cls.__versions__.max + 1)
]


def mutated_compiler(old: str, new: str) -> ModuleType:
    """Return a copy of the compiler in which `old` in the source of one module is replaced by `new`."""
    places = [Path(str(module.__file__)).read_text().count(old) for module in MODULES]
    assert sum(places) == 1, f"{sum(places)} places match {old!r}"
    mutants: list[ModuleType] = []
    with pytest.MonkeyPatch.context() as patch:
        for module, matches in zip(MODULES, places, strict=True):
            mutants.append(mutated(module, old if matches else "", new))
            # The remaining modules of the loop, which are executed later, import this mutant.
            patch.setitem(sys.modules, module.__name__, mutants[-1])
    return mutants[-1]


def mutated(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return a copy of the module in whose source `new` replaces `old`. An empty `old` changes nothing."""
    spec = importlib.util.spec_from_loader(f"{module.__name__}_mutant", loader=None)
    assert spec is not None
    mutant_module = importlib.util.module_from_spec(spec)
    sys.modules[mutant_module.__name__] = mutant_module  # dataclasses look up annotations in sys.modules
    text = Path(str(module.__file__)).read_text()
    exec(
        compile(text.replace(old, new) if old else text, f"<{mutant_module.__name__}>", "exec"),
        vars(mutant_module),
    )
    return mutant_module
