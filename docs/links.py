"""Follows every link of the pages as they were built, and of the files beside them that people read first.

    python docs/links.py build/site README.md CONTRIBUTING.md ...

A link inside has to lead to a page that is there, and to a heading of it. Nothing may be loaded from outside
(links to other sites are not followed). Prints what leads nowhere; exit code 1 if anything does, 2 if there
is no such folder or file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
_SHEETS = {"stylesheet", "icon", "preload", "preconnect"}


class Page(HTMLParser):
    """The ids of a page, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loads += [found[name] for of, name in _LOADED if of == tag and name in found]
        if tag == "link" and _SHEETS & set(found.get("rel", "").split()):
            self.loads.append(found["href"])


def of_site(site: Path) -> Iterator[str]:
    """What leads nowhere in a folder of HTML."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: there is no page"
    for path, page in pages.items():
        here = path.relative_to(site).as_posix()
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{here}: loads {link}"
                continue
            if here == "404.html":  # its links begin at the root of a site that is served
                target = site / parts.path.lstrip("/")
            else:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{here}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{here}: {link}: no such heading"


def anchors(text: str) -> set[str]:
    """The ids of the headings of a page in Markdown, as MkDocs makes them."""
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text)):
        given = re.search(r"\{ #([\w-]+) \}", heading)
        plain = re.sub(r"[^\w\s-]", "", heading.split("{")[0]).strip().lower()
        found.add(given[1] if given else re.sub(r"[-\s]+", "-", plain))
    return found


def of_file(path: Path) -> Iterator[str]:
    """What leads nowhere in a file of Markdown."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = path.parent / parts.path if parts.path else path
        if not target.exists():
            yield f"{path}: {link}"
        elif parts.fragment and (
            target.is_dir() or parts.fragment not in anchors(target.read_text(encoding="utf-8"))
        ):
            yield f"{path}: {link}: no such heading"


def main(words: list[str]) -> int:
    """Every folder as a site, every file as Markdown."""
    missing = [word for word in words if not Path(word).exists()]
    if missing or not words:
        told = f"there is no {', '.join(missing)}" if missing else "name folders of HTML or files of Markdown"
        print(f"links.py: {told}", file=sys.stderr)
        return 2
    wrong = [
        told
        for path in map(Path, words)
        for told in (of_site(path.resolve()) if path.is_dir() else of_file(path))
    ]
    print("\n".join(wrong) or "every link leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
