"""Prepare README for a package index, which setup.cfg cannot express.

Relative links and pictures do not work on a package index. If `url` in setup.cfg is the address of the
repository, for example https://HOST/OWNER/kproto, they become absolute, for the tag of the version. Otherwise
only the words of links remain, the picture is removed, and a paragraph at the end names the pages.
"""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PAGES = """
The source distribution contains the pages (`pip download --no-binary kproto kproto`): start with
`docs/index.md`.
"""


def description(text: str, url: str, version: str) -> str:
    """Return the README `text` with absolute links, or without links if `url` is empty."""

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if ":" in target or target.startswith("#"):
            return match[0]
        if not url:
            return "" if picture else words
        return f"{picture}[{words}]({url}/{'raw' if picture else 'blob'}/v{version}/{target})"

    linked = re.sub(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)", link, text)
    return linked if url else f"{linked.rstrip()}\n{PAGES}"


def read(config: Path = ROOT / "setup.cfg") -> str:
    """Return the description of this release."""
    settings = ConfigParser()
    settings.read(config, encoding="utf-8")
    version = re.search(
        r'__version__ = "(.+?)"', (ROOT / "kproto" / "version.py").read_text(encoding="utf-8")
    )
    assert version is not None
    url = settings.get("metadata", "url", fallback="").rstrip("/")
    return description((ROOT / "README.md").read_text(encoding="utf-8"), url, version[1])


if __name__ == "__main__":
    setup(long_description=read())
