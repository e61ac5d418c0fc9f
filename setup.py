"""What setup.cfg can't say: README as a package index shows it.

Links between files and the picture lead nowhere there. With `url` in setup.cfg, a repository's address, say
https://HOST/OWNER/kproto, they become absolute, for the version's tag. Without one their words stay, the
picture is left out, and the end says where the pages are.
"""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PAGES = """
The pages that are named here are in the source distribution (`pip download --no-binary kproto kproto`), from
`docs/index.md` on.
"""


def description(text: str, url: str, version: str) -> str:
    """README with links that lead somewhere from anywhere."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if ":" in target or target.startswith("#"):
            return found[0]
        if not url:
            return "" if picture else words
        return f"{picture}[{words}]({url}/{'raw' if picture else 'blob'}/v{version}/{target})"

    said = re.sub(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)", link, text)
    return said if url else f"{said.rstrip()}\n{PAGES}"


def read(config: Path = ROOT / "setup.cfg") -> str:
    """The description of this release."""
    settings = ConfigParser()
    settings.read(config, encoding="utf-8")
    version = re.search(
        r'__version__ = "(.+?)"', (ROOT / "kproto" / "__init__.py").read_text(encoding="utf-8")
    )
    assert version is not None
    url = settings.get("metadata", "url", fallback="").rstrip("/")
    return description((ROOT / "README.md").read_text(encoding="utf-8"), url, version[1])


if __name__ == "__main__":
    setup(long_description=read())
