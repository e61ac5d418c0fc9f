"""Protobuf schemas of a registry: their files, their messages, and the indexes of the messages.

The registry sends a schema as a FileDescriptorProto in base64, if the request contains format=serialized.

Message indexes are a path to a message: the position of its outermost enclosing message in the file, then the
position of each nested message in the message that encloses it. As in Confluent's Java clients, the nested
messages that protoc generates for map fields do not count.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from .registry import Schema
from .subjects import require_kind

# The value of `format` with which the registry returns a Protobuf schema as its descriptor.
SERIALIZED: Final = "serialized"
# The folders of Google's and Confluent's own files, which a schema imports without a reference.
_BUILTIN_PREFIXES: Final = ("google/protobuf/", "google/type/", "confluent/")
# The files of Google whose Python modules `descriptor_pool` imports to get their descriptors.
_IMPORTABLE_FILE: Final = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")


class InvalidSchema(ValueError):
    """Raised if a file of a schema is not valid. `file` is its name, or empty if the name is unknown."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file, self.reason = file, reason

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}" if self.file else self.reason


def is_builtin(file: str) -> bool:
    """Return whether a file belongs to Google or Confluent. Schemas import such files without a reference."""
    return file.startswith(_BUILTIN_PREFIXES)


def message_indexes(message: Any) -> tuple[int, ...]:
    """Return the indexes of a message, given its descriptor."""
    indexes: tuple[int, ...] = ()
    while message is not None:
        outer = message.containing_type
        siblings = message.file.message_types_by_name.values() if outer is None else outer.nested_types
        names = [sibling.name for sibling in siblings if not sibling.GetOptions().map_entry]
        indexes = (names.index(message.name), *indexes)
        message = outer
    return indexes


def message_names(schema: Schema) -> dict[tuple[int, ...], str]:
    """Return the full name of each message in a registered schema: message indexes -> name.

    Raises ValueError if the schema is not Protobuf.
    """
    require_kind(schema, "PROTOBUF")
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    # The registry has ignored `format=serialized`, and has sent the text of the .proto file.
    except Exception:
        return _message_names_in_text(schema.text)
    names: dict[tuple[int, ...], str] = {}

    def add_names(messages: Any, outer_indexes: tuple[int, ...], prefix: str) -> None:
        for position, message in enumerate(m for m in messages if not m.options.map_entry):
            indexes = (*outer_indexes, position)
            names[indexes] = f"{prefix}.{message.name}".strip(".")
            add_names(message.nested_type, indexes, names[indexes])

    add_names(file.message_type, (), file.package)
    return names


_COMMENT_OR_STRING = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_PACKAGE_MESSAGE_OR_BRACE = re.compile(
    r"\bpackage\s+(?P<package>[\w.\s]+);|\bmessage\s+(?P<message>\w+)\s*\{|(?P<brace>[{}])"
)


def _message_names_in_text(text: str) -> dict[tuple[int, ...], str]:
    """Return the result of `message_names` for the text of a .proto file."""
    names: dict[tuple[int, ...], str] = {}
    package = ""
    # The open blocks at the current position, outermost first. The entry of a message is its message indexes,
    # and the entry of any other block is None.
    blocks: list[tuple[int, ...] | None] = []
    for match in _PACKAGE_MESSAGE_OR_BRACE.finditer(_COMMENT_OR_STRING.sub(" ", text)):
        if match["package"]:
            package = "".join(match["package"].split())
        elif match["message"]:
            outer_indexes = blocks[-1] if blocks else ()
            if outer_indexes is None:
                blocks.append(None)
                continue
            siblings = [other for other in names if other[:-1] == outer_indexes]
            indexes = (*outer_indexes, len(siblings))
            names[indexes] = f"{names.get(outer_indexes, package)}.{match['message']}".strip(".")
            blocks.append(indexes)
        elif match["brace"] == "{":
            blocks.append(None)
        elif blocks:
            blocks.pop()
    return names


def registered_files(schema: Schema) -> Any:
    """Return a FileDescriptorSet of a registered schema; the schema's own file is the last one.

    Each file comes after its imports. Google's files are omitted. Raises ValueError if the schema is not
    Protobuf, and InvalidSchema if a file has no descriptor.
    """
    require_kind(schema, "PROTOBUF")
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    files = pb.FileDescriptorSet()
    for name, reference in (*schema.references(), ("", schema)):
        file = files.file.add()
        try:
            file.ParseFromString(base64.b64decode(reference.text, validate=True))
        # A DecodeError or a base64 error means that the registry has ignored format=serialized.
        except Exception as error:
            raise InvalidSchema("", f"the registry sends no descriptor ({error})") from None
        file.name = name or file.name or "latest.proto"
    return files


def descriptor_pool(files: Any, missing_import: Callable[[str, str], str] | None = None) -> Any:
    """Return a DescriptorPool with a FileDescriptorSet's files, and the files of Google that they import.

    Raises InvalidSchema if a file is invalid, for example because it imports an unknown file.
    `missing_import(file, imported file)` returns the error message for an unknown import.
    """
    pools: Any = import_module("google.protobuf.descriptor_pool")
    pool, remaining = pools.DescriptorPool(), {file.name: file for file in files.file}
    while remaining:
        # A path in the graph of imports: each file imports the next one. The path's last file is added to the
        # pool as soon as the files that it imports have been added.
        path = [next(iter(remaining))]
        while path:
            file = remaining.get(path[-1])
            if file is None:
                path.pop()
                continue
            pending_imports = [name for name in file.dependency if name in remaining]
            # If the path is longer than the number of remaining files, a file occurs in it twice, so the
            # imports form a cycle. The path's last file is then added before the files that it imports, and
            # `_add_file` raises InvalidSchema for the missing import.
            if pending_imports and len(path) <= len(remaining):
                path.append(pending_imports[0])
                continue
            _add_file(pool, file, missing_import)
            del remaining[path.pop()]
    return pool


def _add_file(pool: Any, file: Any, missing_import: Callable[[str, str], str] | None) -> None:
    """Add a file to the pool. Before it, add the files that it imports and the pool lacks.

    These files come from Python modules that this process can import. Raises InvalidSchema if there is no
    module for such a file, or if the pool rejects the file.
    """
    pools: Any = import_module("google.protobuf.descriptor_pool")
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    for imported in file.dependency:
        if not _add_import(pool, pools.Default(), pb, imported):
            reason = f"{file.name} imports {imported}, to which the schema does not refer"
            raise InvalidSchema(file.name, missing_import(file.name, imported) if missing_import else reason)
    try:
        pool.Add(file)
        pool.FindFileByName(file.name)
    except Exception as error:  # The pool raises TypeError or KeyError if it rejects the file.
        raise InvalidSchema(file.name, f"the file is not valid: {error}") from None


def _add_import(pool: Any, default_pool: Any, pb: Any, name: str) -> bool:
    """Add the .proto file `name`, and the files that it imports, to `pool`.

    A file is added only if `pool` lacks it and this process can import its Python module. `default_pool` has
    the files of the modules that this process has imported. Return whether `pool` now has the file `name`.
    """
    try:
        pool.FindFileByName(name)
    except KeyError:
        try:
            if _IMPORTABLE_FILE.fullmatch(name):
                import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
            imported = default_pool.FindFileByName(name)
        except (KeyError, ImportError):
            return False
        for dependency in imported.dependencies:
            _add_import(pool, default_pool, pb, dependency.name)
        file = pb.FileDescriptorProto()
        imported.CopyToProto(file)
        pool.Add(file)
    return True
