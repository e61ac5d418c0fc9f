"""`kproto cluster features`, `upgrade` and `downgrade` show and change the levels of features."""

from __future__ import annotations

from argparse import Namespace

import pytest

from consumer import FeatureUpdate
from kproto.cli import features
from kproto.cli.features import metadata_versions, print_results, release_levels
from kproto.errors import BrokerError
from tests.cli.stage import Shell


def test_levels_are_changed_only_with_execute(shell: Shell) -> None:
    assert shell("cluster features") == [
        "Feature: transaction.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\t"
        "FinalizedVersionLevel: 2\tEpoch: 0"
    ]
    assert shell("cluster downgrade transaction.version=1") == ["transaction.version can be downgraded to 1."]
    assert shell.errors == "no feature was changed; add --execute to do it\n"
    assert shell("cluster downgrade transaction.version=1 --execute") == [
        "transaction.version was downgraded to 1."
    ]
    assert shell.json("cluster features") == [
        {
            "feature": "transaction.version",
            "supportedMinVersion": 0,
            "supportedMaxVersion": 2,
            "finalizedVersionLevel": 1,
            "epoch": 1,
        }
    ]
    assert shell.json("cluster upgrade transaction.version=2 --execute") == [
        {"feature": "transaction.version", "level": 2, "done": "upgraded"}
    ]


@pytest.mark.parametrize("more", ["", " --execute"])
def test_a_level_that_the_controller_rejects_is_an_error(shell: Shell, more: str) -> None:
    assert shell(f"cluster upgrade transaction.version=9{more}", code=1) == []
    assert "only supports versions 0-2" in shell.errors
    shell(f"cluster downgrade --unsafe transaction.version=3{more}", code=1)


def test_updates_that_succeed_are_printed_although_others_fail(capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(verb="upgrade", execute=True, json=False)
    updates = {name: FeatureUpdate(1) for name in ("group.version", "kraft.version", "x")}
    failed = {name: BrokerError(95, "UpdateFeatures", f"{name}: no") for name in ("kraft.version", "x")}
    assert print_results(options, updates, failed) == 1
    printed = capsys.readouterr()
    assert printed.out == "group.version was upgraded to 1.\n"
    assert printed.err.splitlines() == [
        f"kproto cluster upgrade: UpdateFeatures: INVALID_UPDATE_VERSION (95): {name}: no" for name in failed
    ]


def test_the_level_of_metadata_version_has_a_name(shell: Shell) -> None:
    levels = metadata_versions()
    assert (levels["3.3-IV3"], levels["3.9-IV0"], levels["4.3-IV0"]) == (7, 21, 30)
    shell("cluster upgrade metadata.version=4.3-IV0", code=1)
    assert "Invalid update version 30 for feature metadata.version" in shell.errors
    for level in ("4.3-IV9", "-1", "40000"):
        shell(f"cluster upgrade metadata.version={level}", code=2)
        assert "a level of at least 0, or for metadata.version a name such as 4.4-IV2" in shell.errors


def test_a_release_has_a_level_of_each_feature(shell: Shell) -> None:
    assert release_levels("4.0") == {
        "metadata.version": 25,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 0,
        "share.version": 0,
        "streams.version": 0,
    }
    shell("cluster upgrade --release-version 4.0", code=1)
    # The embedded broker rejects all updates with one error, which the command prints once.
    assert shell.errors.count("Invalid update version 25 for feature metadata.version") == 1
    assert len(shell.errors.splitlines()) == 1
    for words, allowed in {
        "upgrade": "allowed: at least one feature, or --release-version",
        "upgrade --release-version 4.0 group.version=1": "allowed only without NAME=LEVEL",
        "downgrade --release-version 1.0": "choose from",
    }.items():
        shell(f"cluster {words}", code=2)
        assert allowed in shell.errors


def test_a_level_of_the_metadata_version_has_the_name_of_its_release() -> None:
    levels = metadata_versions()
    version, level = next(iter(levels.items()))
    assert features._level_text("metadata.version", level) == version
    assert features._level_text("metadata.version", 9_999) == "UNKNOWN [9999]"
    assert features._level_text("kraft.version", level) == str(level)
