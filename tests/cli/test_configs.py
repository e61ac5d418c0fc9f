"""`kproto configs` prints and changes configs of topics, brokers and groups."""

from __future__ import annotations

from tests.cli.stage import Shell


def test_configs_are_changed_and_printed_with_their_sources(shell: Shell) -> None:
    shell("topics create c1")
    assert shell("configs describe topics c1") == ["Dynamic configs for topic c1 are:"]
    done = shell("configs alter topics c1 --set retention.ms=1000 --append cleanup.policy=compact")
    assert done == ["Completed updating config for topic c1."]
    rows = {row["config"]: row for row in shell.json("configs describe topics c1")}
    assert rows["retention.ms"] == {
        "type": "topics",
        "name": "c1",
        "config": "retention.ms",
        "value": "1000",
        "source": "dynamic_topic_config",
        "sensitive": False,
    }
    assert rows["cleanup.policy"]["value"] == "delete,compact"
    shell("configs alter topics c1 --delete retention.ms --subtract cleanup.policy=delete")
    _, line = shell("configs describe topics c1")
    assert line.startswith("  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")


def test_all_prints_defaults_too(shell: Shell) -> None:
    shell("topics create c2")
    title, *lines = shell("configs describe topics c2 --all")
    assert title == "All configs for topic c2 are:"
    assert any(line.startswith("  retention.ms=604800000 ") for line in lines)
    assert shell("configs describe brokers 1 --all")[0] == "All configs for broker 1 are:"


def test_an_unknown_config_or_entity_is_an_error(shell: Shell) -> None:
    shell("topics create c3")
    shell("configs alter topics c3 --set no.such=1", code=1)
    assert "Unknown topic config name: no.such" in shell.errors
    assert shell("configs describe topics c3 nowhere", code=1) == ["Dynamic configs for topic c3 are:"]
    assert "topic 'nowhere'" in shell.errors
    shell("configs alter topics c3", code=2)
    assert "at least one of --set, --append, --subtract and --delete" in shell.errors
