"""Names that a package imports when they are first used (PEP 562).

if not TYPE_CHECKING:  # a type checker would accept any attribute
    __getattr__ = lazy_attributes(__name__, {"Consumer": ".blocking.consumer"})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final

# Maps a class name of another client, or a former name of kproto's class, to kproto's class. The error for
# such a name suggests kproto's class.
OTHER_CLASSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "KafkaConsumer": "Consumer",
        "KafkaProducer": "Producer",
        "KafkaAdminClient": "Admin",
        "Cluster": "Admin",
        "AsyncCluster": "AsyncAdmin",
        "AdminClient": "Admin",
        "DeserializingConsumer": "Consumer",
        "SerializingProducer": "Producer",
        "AIOKafkaConsumer": "AsyncConsumer",
        "AIOKafkaProducer": "AsyncProducer",
        "AIOKafkaAdminClient": "AsyncAdmin",
        "AIOConsumer": "AsyncConsumer",
        "AIOProducer": "AsyncProducer",
        "ConsumerRebalanceListener": "RebalanceListener",
    }
)


def lazy_attributes(
    package: str, sources: Mapping[str, str], load: Callable[[str], ModuleType] | None = None
) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package` that imports a name from its module and stores it in the package.

    `sources` maps a name to its module, absolute or relative to the package. `load`, if given, imports the
    module instead of `import_module`.
    """

    def load_name(name: str) -> Any:
        source = sources.get(name)
        if source is None:
            raise _unknown_name(package, name, sources)
        value = getattr(import_module(source, package) if load is None else load(source), name)
        setattr(sys.modules[package], name, value)
        return value

    return load_name


def lazy_modules(package: str, paths: Iterable[str]) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for `package` that imports a module of the package when it is first used.

    `paths` are the modules' paths relative to the package. The last part of a path is the name of the
    attribute.
    """
    modules = {path.rpartition(".")[2]: f".{path}" for path in paths}

    def load_module(name: str) -> ModuleType:
        if name not in modules:
            names = ", ".join(sorted(modules))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; its modules are {names}")
        module = import_module(modules[name], package)
        setattr(sys.modules[package], name, module)
        return module

    return load_module


def _unknown_name(package: str, name: str, sources: Mapping[str, str]) -> AttributeError | ImportError:
    """Return the error for a name that `package` does not have.

    For a name of `OTHER_CLASSES`, the message gives the name of kproto's class. In `from ... import`, Python
    replaces the message of an AttributeError. The error for such a statement is therefore an ImportError.
    """
    kproto_class = OTHER_CLASSES.get(name)
    if kproto_class not in sources:
        return AttributeError(
            f"module {package!r} has no attribute {name!r}; help({package}) lists its names"
        )
    hint = f"it is called {kproto_class} here: from {package} import {kproto_class}"
    text = f"module {package!r} has no {name!r}; {hint}"
    # Frame 0 is this function, frame 1 is `load_name`, and frame 2 looks the name up.
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    is_from_import = caller.f_globals.get("__name__") == "importlib._bootstrap"
    return ImportError(text, name=package) if is_from_import else AttributeError(text)


def call_by_name(function: str, value: object) -> Any:
    """Call a function of a higher layer with `value`. `function` is a module and its function, as in "a.b:f".

    The module is imported during the call, so the layer of the caller does not depend on it.
    """
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)(value)


def render_html(function: str, value: object) -> str:
    """Return `value` as HTML for a notebook. `function` has the form that `call_by_name` expects.

    The functions that render objects are in higher layers than the objects, so the functions are called by
    name.
    """
    html: str = call_by_name(function, value)
    return html
