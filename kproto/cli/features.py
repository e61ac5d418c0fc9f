"""The feature levels of a cluster in `kproto cluster`: describe, upgrade and downgrade them (KIP-584)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError, PartialFailure
from .arguments import Subparsers, key_values, parse_digits
from .connection import add_execute, add_verb, admin_client, exit_code, say_not_executed
from .tables import cell, print_json

if TYPE_CHECKING:
    from consumer import FeatureMetadata, FeatureUpdate

METADATA_VERSION = "metadata.version"
# Release of Kafka -> the number N in the name of its last metadata.version: 3 for 3.3-IV3 (MetadataVersion).
# Levels are assigned to these versions in order, from 7 on.
_RELEASES = {
    "3.3": 3, "3.4": 0, "3.5": 2, "3.6": 2, "3.7": 4, "3.8": 0, "3.9": 0, "4.0": 3, "4.1": 1, "4.2": 1,
    "4.3": 0, "4.4": 2,
}  # fmt: skip

# Release of Kafka -> the number N in the name of its first metadata.version. A release that is missing here
# begins with IV0. The oldest version that Kafka 4 supports is 3.3-IV3, with level 7.
_FIRST = {"3.3": 3}
# Each feature except metadata.version -> the releases that raised its level by one (Feature.defaultLevel).
_RAISED = {
    "kraft.version": ("3.9",),
    "transaction.version": ("4.0", "4.0"),
    "group.version": ("4.0",),
    "eligible.leader.replicas.version": ("4.1",),
    "share.version": ("4.2", "4.4"),
    "streams.version": ("4.2",),
}


def metadata_versions() -> dict[str, int]:
    """Map the name of each metadata.version, such as 4.3-IV0, to its feature level."""
    names = [
        f"{release}-IV{number}"
        for release, last in _RELEASES.items()
        for number in range(_FIRST.get(release, 0), last + 1)
    ]
    return {name: level for level, name in enumerate(names, 7)}


def release_levels(release: str) -> dict[str, int]:
    """Return the level of each feature in a new cluster of this release of Kafka, such as 4.3.

    Raises KeyError for an unknown release.
    """
    metadata_version = f"{release}-IV{_RELEASES[release]}"
    order = list(_RELEASES)
    other_levels = {
        name: sum(order.index(raised_in) <= order.index(release) for raised_in in releases)
        for name, releases in _RAISED.items()
    }
    return {METADATA_VERSION: metadata_versions()[metadata_version], **other_levels}


def add_feature_verbs(verbs: Subparsers) -> None:
    """Add the verbs `features`, `upgrade` and `downgrade`."""
    add_verb(verbs, "features", _describe, "print the features with their levels")
    for verb, direction in (("upgrade", "higher"), ("downgrade", "lower")):
        parser = add_verb(
            verbs,
            verb,
            _update,
            f"set features to {direction} levels",
            description=f"Set features to {direction} levels. The controller checks the levels, and changes "
            "all features or none.",
            epilog=f"Example: kproto cluster {verb} metadata.version=4.2-IV1 transaction.version=1 --execute "
            "--bootstrap localhost:9092",
        )
        parser.add_argument(
            "updates",
            nargs="*",
            metavar="NAME=LEVEL",
            help="a feature and its level; that of metadata.version is a number or a name such as 4.3-IV0; "
            "level 0 disables a feature",
        )
        parser.add_argument(
            "--release-version",
            choices=list(_RELEASES),
            metavar="RELEASE",
            help="set all features to the levels of this release of Kafka, such as 4.3",
        )
        if verb == "downgrade":
            parser.add_argument(
                "--unsafe", action="store_true", help="also if the cluster would lose metadata"
            )
        add_execute(parser, "change the levels")


def _level_text(name: str, level: int) -> str:
    """Return a level as a number. A level of metadata.version is returned as a name, such as 4.3-IV0."""
    if name != METADATA_VERSION:
        return str(level)
    names = {number: version for version, number in metadata_versions().items()}
    return names.get(level, f"UNKNOWN [{level}]")


def _describe(options: argparse.Namespace) -> int:
    with admin_client(options) as admin:
        features = admin.describe_features()
    _print_features(features, as_json=options.json)
    return 0


def _print_features(features: FeatureMetadata, *, as_json: bool) -> None:
    epoch = features.finalized_features_epoch
    for name, supported in sorted(features.supported_features.items()):
        finalized = features.finalized_features.get(name)
        level = finalized.max_version if finalized is not None else 0
        numbers = {
            "supportedMinVersion": supported.min_version,
            "supportedMaxVersion": supported.max_version,
            "finalizedVersionLevel": level,
        }
        if as_json:
            print_json([{"feature": name, **numbers, "epoch": epoch}])
        else:
            shown = [f"{key[0].upper()}{key[1:]}: {_level_text(name, n)}" for key, n in numbers.items()]
            print("\t".join([f"Feature: {cell(name)}", *shown, f"Epoch: {cell(epoch)}"]))


def _requested_updates(options: argparse.Namespace) -> Mapping[str, FeatureUpdate]:
    """Map the name of each feature to the update that NAME=LEVEL or --release-version requests."""
    from consumer import FeatureUpdate

    upgrade_type = "upgrade"
    if options.verb == "downgrade":
        upgrade_type = "unsafe_downgrade" if options.unsafe else "safe_downgrade"
    updates: dict[str, FeatureUpdate] = {}
    if options.release_version is not None:
        if options.updates:
            raise ConfigError("--release-version", options.release_version, "allowed only without NAME=LEVEL")
        levels = release_levels(options.release_version)
        # A feature that the release does not have can be disabled, but not enabled.
        return {
            name: FeatureUpdate(level, upgrade_type)
            for name, level in levels.items()
            if level or upgrade_type != "upgrade"
        }
    if not options.updates:
        raise ConfigError("NAME=LEVEL", "", "allowed: at least one feature, or --release-version")
    for name, text in key_values("NAME=LEVEL", options.updates).items():
        level = parse_digits(text)
        if level < 0 and name == METADATA_VERSION:
            level = metadata_versions().get(text, -1)
        if not 0 <= level < 2**15:
            newest = list(metadata_versions())[-1]
            allowed = f"allowed: a level of at least 0, or for {METADATA_VERSION} a name such as {newest}"
            raise ConfigError("NAME=LEVEL", f"{name}={text}", allowed)
        updates[name] = FeatureUpdate(level, upgrade_type)
    return updates


def _update(options: argparse.Namespace) -> int:
    updates = _requested_updates(options)
    failed: Mapping[str, KprotoError] = {}
    with admin_client(options) as admin:
        try:
            admin.update_features(updates, validate_only=not options.execute)
        except PartialFailure as error:
            failed = error.failed
    return print_results(options, updates, failed)


def print_results(
    options: argparse.Namespace, updates: Mapping[str, FeatureUpdate], failed: Mapping[str, KprotoError]
) -> int:
    """Print the updates that succeeded, and the errors of the failed ones. Return the exit code.

    Before Kafka 4.0, some updates of a request may succeed although others fail.
    """
    succeeded = {name: update.max_version_level for name, update in updates.items() if name not in failed}
    for name, level in succeeded.items():
        if options.json:
            done = f"{options.verb}d" if options.execute else "checked"
            print_json([{"feature": name, "level": level, "done": done}])
        else:
            verb = "was" if options.execute else "can be"
            print(f"{cell(name)} {verb} {options.verb}d to {level}.")
    if not failed and not options.execute:
        return say_not_executed("no feature was changed")
    errors = list(failed.values())
    # From Kafka 4.0 on, one invalid update makes the controller reject all updates with the same error. This
    # error is printed once, without the names of the features.
    reasons = {str(error).replace(f" {name}:", "", 1) for name, error in failed.items()}
    if len(errors) > 1 and len(reasons) == 1 and not succeeded:
        errors = [KprotoError(*reasons)]
    return exit_code(f"cluster {options.verb}", errors)
