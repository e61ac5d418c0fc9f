"""Check the links of the built site, and of Markdown files such as README.md.

    python docs/links.py build/site README.md CONTRIBUTING.md ...

Each relative link must lead to an existing page and heading. The pages must not load anything from other
sites; links to other sites are not checked. The program prints the broken links. Its exit code is 1 if it
found any, and 2 if a folder or file does not exist.
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
    """Collect the ids, the links and the loaded resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the attributes of a tag; `HTMLParser` calls this."""
        attributes = {name: value or "" for name, value in attrs}
        self.ids |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        self.loads += [attributes[name] for loading, name in _LOADED if loading == tag and name in attributes]
        if tag == "link" and _SHEETS & set(attributes.get("rel", "").split()):
            self.loads.append(attributes["href"])


def check_site(site: Path) -> Iterator[str]:
    """Yield the broken links in the HTML files of a folder."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: contains no page"
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{name}: loads {link}"
                continue
            # The server returns 404.html for missing addresses in any folder, so the links of 404.html begin
            # at the root of the site.
            if name == "404.html":
                target = site / parts.path.lstrip("/")
            else:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{name}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: {link}: no such heading"


def anchors(text: str) -> set[str]:
    """Return the ids that MkDocs generates for the headings of a Markdown page."""
    ids: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text)):
        explicit = re.search(r"\{ #([\w-]+) \}", heading)
        plain = re.sub(r"[^\w\s-]", "", heading.split("{")[0]).strip().lower()
        ids.add(explicit[1] if explicit else re.sub(r"[-\s]+", "-", plain))
    return ids


def check_file(path: Path) -> Iterator[str]:
    """Yield the broken links of a Markdown file."""
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
    """Check each folder as a site, and each file as Markdown; return the exit code."""
    missing = [word for word in words if not Path(word).exists()]
    if missing or not words:
        if missing:
            message = f"{', '.join(missing)}: no such file or folder"
        else:
            message = "usage: links.py FOLDER_OF_HTML_OR_MARKDOWN_FILE..."
        print(f"links.py: {message}", file=sys.stderr)
        return 2
    broken = [
        link
        for path in map(Path, words)
        for link in (check_site(path.resolve()) if path.is_dir() else check_file(path))
    ]
    print("\n".join(broken) or "all links are valid")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
