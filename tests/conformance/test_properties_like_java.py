"""JAAS lines and properties are parsed as Kafka's JaasContext and java.util.Properties parse them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from consumer.security.jaas import read_jaas
from consumer.security.properties import read_properties
from kproto.errors import ConfigError
from tests.conformance import judges

pytestmark = pytest.mark.java

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = [
    *(
        "a",
        "b=",
        'u="x"',
        "u='y'",
        'u=""',
        "u=v",
        "=",
        ";",
        ",",
        "1",
        "-",
        "-1",
        "u=1a",
        "u=a1",
        "a-b_c.d=$e",
    ),
    *('"', "'", "\\", '\\"', "\\'", r"\n", r"\101", r"\8", r"\400", r"\x", "\\\n", r'u="\t\a\v\b\f\r\0"'),
    *(
        "/",
        "//",
        "/*",
        "*/",
        "/* c */",
        "// c\n",
        "\n",
        "\r\n",
        "\t",
        " ",
        "\x00",
        "\x7f",
        "ü",
        "\x85",
        "\xa0",
    ),
    *("Ā", "\N{GRINNING FACE}", "REQUIRED", "optional", MODULE, ' username="alice" ', " password='s' "),
]
PROPERTIES = [
    *(
        "a",
        "b",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\n",
        "\r",
        "\r\n",
        "\\",
        "\\\\",
        "#",
        "!",
        "\\\n  ",
        "\\ ",
        "\\=",
    ),
    *(
        r"\u00fc",
        r"\ud83d\ude00",
        r"\u12",
        r"\uu",
        r"\t",
        r"\n",
        r"\x",
        "ü",
        "\N{GRINNING FACE}",
        "\x00",
        "\x0b",
    ),
    *("\n# c\\\n", "\n  ! c\n", "k = v\n", "k:v\n", "k v\n", "\x85", "\u2028", "security.protocol=SSL\n"),
]


def drawn(seed: int, count: int) -> list[tuple[str, str]]:
    random = Random(seed)
    texts: list[tuple[str, str]] = []
    for _ in range(count):
        some = "".join(random.choices(JAAS, k=random.randint(0, 7)))
        texts.append(("jaas", some if random.random() < 0.1 else f"{MODULE} required {some};"))
        # The last line is "z=1", so that no text ends in a continued line. Java 17 ignores such a line, or
        # reads a property without a name, depending on its read-ahead.
        texts.append(("properties", "".join(random.choices(PROPERTIES, k=random.randint(0, 12))) + "\nz=1"))
    return texts


def java_says(texts: list[tuple[str, str]], folder: Path) -> list[str]:
    source = Path(__file__).parent / "java" / "Texts.java"
    lines = "".join(f"{kind}\t{text.encode().hex()}\n" for kind, text in texts)
    run = [judges.java(), "-cp", judges.kafka_jars(), str(source)]
    done = subprocess.run(run, input=lines, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout.splitlines()


def we_say(kind: str, text: str) -> str:
    try:
        return _READ[kind](text)
    except ConfigError:
        return "refused"


def _jaas(text: str) -> str:
    module, options = read_jaas(text)
    return _said([module], options)


def _said(first: list[str], pairs: Mapping[str, str]) -> str:
    # A lone surrogate becomes "?" in Java's UTF-8.
    coded = [tuple(text.encode("utf-8", "replace").hex() for text in pair) for pair in pairs.items()]
    return ",".join(
        [*(text.encode().hex() for text in first), *(text for pair in sorted(coded) for text in pair)]
    )


_READ: dict[str, Callable[[str], str]] = {
    "jaas": _jaas,
    "properties": lambda text: _said([], read_properties(text)),
}


def test_random_texts_are_parsed_as_in_java(tmp_path: Path) -> None:
    seed = int(os.environ.get("KPROTO_SEED", "7"))
    texts = drawn(seed, 10_000)
    answers = java_says(texts, tmp_path)
    read = [kind for (kind, _), java in zip(texts, answers, strict=True) if java != "refused"]
    assert min(read.count("jaas"), read.count("properties")) > 1_000
    wrong = [
        (kind, text, java, ours)
        for (kind, text), java in zip(texts, answers, strict=True)
        if (ours := we_say(kind, text)) != java
    ]
    assert wrong == [], f"KPROTO_SEED={seed}"
