"""`kproto versions`: the APIs and versions that kproto's codecs support."""

from __future__ import annotations

import argparse

from .arguments import Subparsers, api


def add(commands: Subparsers) -> None:
    versions = commands.add_parser("versions", help="list the APIs and the versions that kproto supports")
    versions.add_argument(
        "api", nargs="*", type=api, metavar="API", help="list only these APIs (default: all)"
    )
    versions.set_defaults(run=_versions)


def _versions(options: argparse.Namespace) -> int:
    from ..messages.index import API_NAMES, request_class

    print(f"{'key':>4}  {'API':<30} {'versions':<9} flexible from")
    for key, name in sorted(API_NAMES.items()):
        if options.api and name not in options.api:
            continue
        request = request_class(key)
        flexible = request.__flexible__
        first_flexible = (
            "-" if flexible.max < flexible.min else str(max(flexible.min, request.__versions__.min))
        )
        print(f"{key:>4}  {name:<30} {request.__versions__!s:<9} {first_flexible}")
    return 0
