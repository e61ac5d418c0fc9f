"""Each code block of the documentation runs, each link is valid, and each generated page is complete."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from consumer.spark.session import SETTINGS
from kproto.messages.index import API_NAMES, request_class
from tests.documents import DOCS, PAGES, Block, blocks, run_console, run_python, with_kproto

BLOCKS = [block for page in PAGES for block in blocks(page)]


def name(item: Any) -> str:
    return item.relative_to(DOCS).as_posix() if isinstance(item, Path) else f"{item.page}:{item.line}"


@cache
def program(name: str) -> Any:
    """Load docs/<name>.py as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hooks() -> Any:
    return program("hooks")


@cache
def generated() -> dict[str, str]:
    return dict(hooks().generated())


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind == "python" and block.runs and not block.needs]


# The property tests of this page draw 100 examples, Hypothesis's default, and therefore are slow.
SLOW = DOCS / "how-to" / "property-tests.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.thorough if page == SLOW else [])
        for page in PAGES
        if python_of(page)
    ],
    ids=name,
)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(python_of(page))


CONSOLES = [block for block in BLOCKS if block.kind == "console" and block.runs]


@pytest.mark.parametrize("block", CONSOLES, ids=name)
def test_a_page_shows_the_output_of_a_command(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    run_console(block, capsys)


@pytest.mark.thorough
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.mark == "script"], ids=name)
def test_a_script_runs(block: Block, tmp_path: Path) -> None:
    script = f"set -eu\n{block.code}"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=with_kproto(tmp_path), check=True, timeout=100)


def test_each_block_runs_or_gives_a_reason() -> None:
    known = ("needs: clients", "needs: spark", "script", "not run: ", "file: ", "")
    for block in BLOCKS:
        assert block.mark.startswith(known), f"{block.page}:{block.line}: {block.mark}"
        assert bool(block.file) == (block.kind in ("go", "java", "js")), f"{block.page}:{block.line}"
        if block.kind == "sh":
            assert block.mark == "script" or not block.runs, f"{block.page}:{block.line}"


def test_every_link_between_pages_is_valid() -> None:
    texts = {page.relative_to(DOCS).as_posix(): page.read_text() for page in DOCS.rglob("*.md")} | generated()
    anchors = cache(program("links").anchors)
    for page, text in texts.items():
        plain = re.sub(r"(?ms)^```.*?^```", "", text)
        for link in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if target.endswith(".md"):
                assert target in texts, f"{page}: {link}"
                assert not anchor or anchor in anchors(texts[target]), f"{page}: {link}"
            else:
                assert (DOCS / target).exists(), f"{page}: {link}"


def test_broken_links_of_a_site_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(
        '<h1 id="one">A</h1> <a href="../">up</a> <a href="#one">1</a>'
    )
    (tmp_path / "index.html").write_text(
        '<a href="a/#one">fine</a> <a href="a/#two"></a> <a href="b/"></a> <img src="c.png">'
        '<a href="https://kafka.apache.org/"></a> <script src="https://elsewhere.example/x.js"></script>'
    )
    assert list(program("links").check_site(tmp_path)) == [
        "index.html: a/#two: no such heading",
        "index.html: b/",
        "index.html: c.png",
        "index.html: loads https://elsewhere.example/x.js",
    ]


def test_broken_links_of_a_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, or two\n\n```\n# none\n```\n")
    (tmp_path / "README.md").write_text(
        "[1](other.md#a-heading-or-two) [2](other.md#none) [3](no.md) [4](https://kafka.apache.org/)"
    )
    assert list(program("links").check_file(tmp_path / "README.md")) == [
        f"{tmp_path / 'README.md'}: other.md#none: no such heading",
        f"{tmp_path / 'README.md'}: no.md",
    ]


def test_empty_sites_and_missing_files_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = program("links").main
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "none"), str(tmp_path)]) == 2
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path}: contains no page\n"
    assert printed.err.splitlines() == [
        f"links.py: {tmp_path / 'none'}: no such file or folder",
        "links.py: usage: links.py FOLDER_OF_HTML_OR_MARKDOWN_FILE...",
    ]


def test_the_pages_of_the_api_have_every_public_name_of_kproto() -> None:
    import kproto

    text = "".join(generated()[path] for path in hooks().CLIENT)
    for public in kproto.__all__:
        if public not in ("__version__", "TopicPartition"):
            assert f"## {public}\n" in text, public
    assert (
        "`poll(timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]`" in text
    )
    assert "`await poll(" in text


def test_the_pages_of_the_api_link_to_the_options_instead_of_listing_them() -> None:
    pages = generated()
    assert "[Options of the clients](client-options.md)" in pages["reference/consumer.md"]
    assert [path for path in hooks().CLIENT if "Options and their defaults" in pages[path]] == []
    assert [path for path in hooks().CLIENT if "For TLS and SASL" in pages[path]] == []


def test_each_cell_of_a_table_has_the_title_of_its_column() -> None:
    html = (
        '<table><thead><tr><th style="x">an <code>option</code></th><th>default</th></tr></thead>'
        "<tbody><tr><td>a</td><td><code>1</code></td></tr><tr><td>b</td></tr></tbody></table><td>"
    )
    assert re.findall("<td.*?>", hooks().on_page_content(html, None, None, None)) == [
        '<td data-label="an option">',
        '<td data-label="default">',
        '<td data-label="an option">',
        "<td>",
    ]


def test_the_overview_of_the_lessons_comes_before_them() -> None:
    [lessons] = hooks()._expand([{"Lessons": ["lessons/*"]}])
    assert lessons["Lessons"][:2] == ["lessons/README.md", "lessons/000-offset-minus-1000.md"]


def test_the_command_line_page_has_every_command() -> None:
    from kproto import cli

    text = generated()["reference/cli.md"]
    for command in cli._COMMAND_NAMES:
        assert f"## kproto {command}\n" in text


def test_the_page_of_other_names_has_every_option_and_method() -> None:
    text = generated()["reference/other-names.md"]
    assert "| `fetch_wait_max_ms` (consumer) | use fetch_max_wait_ms |" in text
    assert "| `sasl_plain_password` | use sasl_password |" in text
    assert '| `seek_to_end` | consumer | use seek_to("latest") |' in text


def test_the_admin_page_has_every_method_of_java_and_a_reason_for_each_missing_one() -> None:
    from consumer import Admin

    recorded = json.loads((DOCS / "java-admin.json").read_text())
    rows = [line for line in generated()["reference/admin.md"].splitlines() if line.startswith("| `")]
    assert len(rows) == len(recorded["methods"]) == 67
    for row in rows:
        _, java, here, _, note, _ = (cell.strip(" `") for cell in row.split("|"))
        assert here == "Admin" or hasattr(Admin, here) or (here, java in recorded["missing"]) == ("no", True)
        assert note or here != "no"
    unknown = {*recorded["other_names"], *recorded["missing"], *recorded["notes"]} - {*recorded["methods"]}
    assert unknown == set()
    assert [name for name in recorded["not_embedded"] if not hasattr(Admin, name)] == []


def test_the_metrics_page_has_every_metric_and_a_reason_for_each_that_only_java_has() -> None:
    from consumer.engine.consumer_metrics import CONSUMER_METRICS
    from consumer.engine.producer.sensors import PRODUCER_METRICS

    of_consumer, _, of_producer = generated()["reference/metrics.md"].partition("## producer-metrics")
    for client, text, table in (
        ("consumer", of_consumer, CONSUMER_METRICS),
        ("producer", of_producer, PRODUCER_METRICS),
    ):
        listed, _, compared = text.partition(f"## Compared with Java's {client}")
        for metric in table:
            row = f"| `{metric.name}` | {', '.join(metric.tags)} | {metric.measure.value} | {metric.unit} |"
            assert row in listed
            assert metric.unit.endswith(("/s", "/h")) == ("per" in metric.measure.value)
        rows = [line for line in compared.splitlines() if line.startswith("| `")]
        assert len(rows) == len({line.rpartition(" | ")[0] for line in rows}) > 90
        assert [row for row in rows if row.endswith("| no |")] == []
        assert sum("| same" in row for row in rows) == len(table)


def test_the_errors_page_has_every_code_and_class() -> None:
    from kproto import errors
    from kproto.error_codes import ErrorCode

    classes = [
        cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.KprotoError)
    ]
    text = generated()["reference/errors.md"]
    assert all(f"`{code.name}`" in text for code in ErrorCode)
    assert all(f"### {cls.__name__}\n" in text for cls in classes)


def test_the_page_of_broker_configs_has_every_config() -> None:
    from kproto.broker.settings import Settings
    from kproto.broker.topic_configs import TOPIC_CONFIGS

    page = generated()["reference/broker-configs.md"]
    known = {*Settings.from_properties({}).properties(), "log.retention.ms", *TOPIC_CONFIGS}
    assert [name for name in known if f"| `{name}` |" not in page] == []
    assert "| `group.max.size` | int, at least 1 | 2147483647 |  |" in page
    assert "| `log.retention.bytes` | long | -1 | yes |" in page
    assert "| `ssl.client.auth` | string: one of none, requested, required | none |" in page


def test_the_protocol_has_a_page_for_every_message() -> None:
    from kproto.messages.index import API_NAMES

    assert {f"protocol/{api}.md" for api in API_NAMES.values()} <= set(generated())


def test_the_page_of_kafka_versions_has_every_release_and_feature() -> None:
    page = generated()["reference/kafka-versions.md"]
    for release in ("2.1", "2.8", "3.5", "4.0", "4.4"):
        assert f" | {release} |" in page
    keys = {name: key for key, name in API_NAMES.items()}
    for feature in hooks().FEATURES:
        assert feature.version in request_class(keys[feature.api]).__versions__, feature.name
        [row] = [line for line in page.splitlines() if line.startswith(f"| {feature.name} |")]
        # Each release after the first one with the feature must have it, too. "-" sorts before "yes", so the
        # marks must be sorted.
        marks = row.split(" | ")[2:7]
        assert marks == sorted(marks), feature.name
        assert marks[-1] == "yes", feature.name
        assert marks[0] == "-", feature.name


def test_the_page_on_spark_explains_each_setting_of_its_session() -> None:
    text = (DOCS / "how-to" / "spark.md").read_text()
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []


def test_the_index_of_rules_leads_to_cells_and_tests() -> None:
    (row,) = [line for line in generated()["rules/tests.md"].splitlines() if line.startswith("| [R64](")]
    assert "coordinator: SYNC in CompletingRebalance" in row
    assert "test_sync.py::test_a_member_that_the_leader_left_out_is_assigned_nothing`" in row


def test_the_page_of_state_machines_has_a_picture_of_each() -> None:
    from kproto.cli.machines import MACHINES

    page = generated()["reference/state-machines.md"]
    assert page.count("data:image/svg+xml") == len(MACHINES)
    # The CSS rules of a <style> element in a drawing would also apply to the page's header.
    assert "<style" not in page
    assert all(f"## {name.capitalize()}\n" in page for name in MACHINES)


def table_of_changes() -> Iterator[Any]:
    """Yield each row of CONTRIBUTING's table "to change X, open Y"."""
    text = (DOCS.parent / "CONTRIBUTING.md").read_text()
    _, _, table = text.partition("| to change | open | and | tests |\n|---|---|---|---|\n")
    for line in table.partition("\n\n")[0].splitlines():
        yield pytest.param(line, id=line.split("|")[1].strip())


@pytest.mark.parametrize("row", list(table_of_changes()))
def test_the_paths_and_names_of_the_table_of_changes_exist(row: str) -> None:
    """Each path in a row exists, and each quoted name occurs in a file that the row lists."""
    quoted = re.findall(r"`([^`]+)`", row)
    paths = [DOCS.parent / text for text in quoted if "/" in text and " " not in text]  # commands have spaces
    assert paths
    assert [str(path) for path in paths if not path.exists()] == []
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    source = "\n".join(file.read_text() for file in files)
    names = [text for text in quoted if re.fullmatch(r"[\w.]+", text)]
    assert [text for text in names if re.search(rf"\b{re.escape(text)}\b", source) is None] == []


def test_every_page_is_in_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text()
    for page in {page.relative_to(DOCS).as_posix() for page in PAGES} | set(generated()):
        assert page in text or page.startswith("protocol/"), page


def test_lists_and_indented_blocks_of_a_docstring_stay_blocks_in_markdown() -> None:
    code, items = "    for record in consumer:\n        print(record)", "* TypeError\n  for text\n* KeyError"
    text = f"Read records:\n{code}\nIt raises:\n{items}"
    assert hooks()._paragraphs(text) == f"Read records:\n\n{code}\nIt raises:\n\n{items}"


def test_no_paragraph_of_the_reference_continues_in_an_indented_block() -> None:
    for path, text in generated().items():
        lines = re.sub(r"(?ms)^```.*?^```$", "", text).splitlines()
        if "reference/" in path and "state-machines" not in path:
            for line, following in pairwise(lines):
                is_text = line.strip() and not line.startswith((" ", "|", "#", "`", "*", "-", "="))
                assert not (is_text and following.startswith("    ")), f"{path}: {following}"


def test_the_search_finds_words_next_to_punctuation() -> None:
    [separator] = re.findall(r"separator: '(.*)'$", (DOCS.parent / "mkdocs.yml").read_text(), re.M)
    words = re.split(
        separator.replace("''", "'"), "(SIGTERM). `close()`: consumer.poll in 4.3, KafkaConsumer"
    )
    assert {"SIGTERM", "close", "poll", "4.3", "Consumer"} <= set(words)


def test_every_story_that_is_cited_exists() -> None:
    from kproto.scenarios import scenarios

    ids = {story.id for story in scenarios()}
    # The id of a branch, such as S3-19a, also stands for its entry, S3-19.
    ids |= {id.rstrip("abcdefghijklmnopqrstuvwxyz") for id in ids}
    source = DOCS.parent / "kproto"
    text = "\n".join(path.read_text() for path in [*source.rglob("*.py"), *DOCS.rglob("*.md")])
    assert set(re.findall(r"\bS[0-4]-\d+\b", text)) - ids == set()


def test_the_lessons_list_exactly_the_stories_that_the_judges_check() -> None:
    page = DOCS / "lessons" / "README.md"
    table = [line for line in page.read_text().splitlines() if re.match(r"\| 00\d \|", line)]
    judges = (DOCS.parent / "tests" / "conformance").glob("test_document_*.py")
    checked = {story for path in judges for story in re.findall(r"\bS[0-4]-\d+[a-m]?\b", path.read_text())}
    assert set(re.findall(r"\bS[0-4]-\d+[a-m]?\b", "\n".join(table))) == checked
