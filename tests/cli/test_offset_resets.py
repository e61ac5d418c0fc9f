"""`kproto groups reset --from-file` reads a file of offsets, and its errors name the invalid line."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer import TopicPartition
from kproto.cli.offset_resets import read_offsets_file
from kproto.errors import ConfigError


def test_each_line_has_a_topic_a_partition_and_an_offset(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("g,0,4\n\n  \n g,1,0 \nh,12,34\n")
    assert read_offsets_file(file) == {
        TopicPartition("g", 0): 4,
        TopicPartition("g", 1): 0,
        TopicPartition("h", 12): 34,
    }


@pytest.mark.parametrize("line", [",0,4", "g,x,4", "g,0,x", "g,-1,4", "g,0,-1", "g,0", "g", "g,0,4,5"])
def test_an_invalid_line_is_named_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"g,0,4\n\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_offsets_file(file)
    assert f"allowed: lines TOPIC,PARTITION,OFFSET; line 3 is {line!r}" in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    for _ in range(2):
        with pytest.raises(ConfigError, match="allowed: a readable text file"):
            read_offsets_file(file)
        file.write_bytes(b"\xff\xfe\xff")
