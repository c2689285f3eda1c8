"""The documentation: links lead somewhere, every page is reachable, tables are today's, and the
site can be built."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.links import OUTSIDE, ROOT, anchors, links, pages, relinked, site_uri
from omg.catalogue.algorithms import algorithms
from omg.catalogue.document import LEARNER_PAGES, MARK, MODEL_PAGES, markdown, page_of
from omg.config.document import rewritten
from omg.config.loader import available

DOCS = ROOT / "docs"
ALL = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without its tags, so that no package of the site is needed."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site_pages() -> list[str]:
    """All pages that the navigation names."""

    def below(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        parts = entry.values() if isinstance(entry, dict) else entry
        return [page for part in parts for page in below(part)]  # type: ignore[attr-defined]

    return below(yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)["nav"])


# --- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ALL)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for link in links(page.read_text(encoding="utf-8")):
        target = (page.parent / link.target).resolve() if link.target else page
        if not target.exists():
            wrong.append(f"line {link.line}: {link.target}")
        elif link.anchor and link.anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(f"line {link.line}: {link.target}#{link.anchor}")
    assert not wrong


def test_links_are_found_where_they_are_and_not_in_code() -> None:
    text = (
        "[a](one.md) and ![b](two.png), `[c](no.md)`, [`d`](three.md#x) [e](https://there.org)\n"
        "```\n[f](no.md)\n```\n[![g](four.png)](five.md) [h](#here)\n"
        "and `code\nof two lines` [i](six.md) `[j](no.md)`\n"
    )
    found = [(link.line, link.target, link.anchor) for link in links(text)]
    assert found[:3] == [(1, "one.md", ""), (1, "two.png", ""), (1, "three.md", "x")]
    assert (5, "five.md", "") in found
    assert (5, "", "here") in found
    assert (7, "six.md", "") in found
    assert not [link for link in found if "no.md" in link[1]]


def test_anchors_are_githubs() -> None:
    text = "# One `two`: [three](x.md)!\n## A & B\n## A & B\n```\n# code\n```\n### 1. ε-greedy\n"
    assert anchors(text) == {"one-two-three", "a--b", "a--b-1", "1-ε-greedy"}


def test_links_follow_their_pages_to_the_site() -> None:
    assert relinked("[a](docs/x/y.md#z) `[a](docs/x.md)`", "README.md") == (
        "[a](x/y.md#z) `[a](docs/x.md)`"
    )
    page = "[`a`](../../examples/my_env.py) [b](../../CONTRIBUTING.md#c) [d](../e.md) [f](#g)"
    assert relinked(page, "docs/tutorials/t.md") == (
        "[`a`](../examples/my_env.md) [b](../contributing.md#c) [d](../e.md) [f](#g)"
    )
    assert site_uri("omg/types.py") is None


# --- pages ---------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once_and_nothing_else_is() -> None:
    ours = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    shown = {f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.[pi]*[yb]")}
    listed = site_pages()
    assert sorted(listed) == sorted({*ours, *OUTSIDE.values(), *shown})


def test_the_table_of_algorithms_in_the_docs_is_todays() -> None:
    path = DOCS / "algorithms" / "README.md"
    page = path.read_text(encoding="utf-8")
    again = rewritten(page, MARK, markdown())
    assert again == page, "run python -m omg.catalogue.document docs/algorithms/README.md"
    assert sorted(re.findall(r"\| \[`(\w+)`\]", page)) == sorted(available("algs"))


def test_every_algorithm_has_a_page_and_no_page_is_named_for_nothing() -> None:
    used = {page_of(row) for row in algorithms()}
    assert used == {*MODEL_PAGES.values(), *LEARNER_PAGES.values()}


# --- the site ------------------------------------------------------------------------------------

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s\"'>]*"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*href=[\"']?(?:https?:)?//[^\s\"'>]*"
)


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None,
    reason="pip install 'omg-marl[docs]'",
)
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    expected = [re.sub(r"README\.md$", "index.md", page) for page in site_pages()]
    assert {page.replace(".md", ".html") for page in expected} <= made
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    loaded = [
        (str(path.relative_to(site)), found[0])
        for path in site.rglob("*.html")
        if (found := LOADED.search(path.read_text(encoding="utf-8")))
    ]
    assert not loaded
    reference = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("omg.train", "omg.Run", "omg.Pool.add_script"):
        assert f'id="{name}"' in reference
    assert not list(site.rglob("*.py"))


def test_something_loaded_from_elsewhere_would_be_noticed() -> None:
    for page in (
        '<script src="https://cdn.org/x.js">',
        "<link rel=stylesheet href=https://fonts.org/css>",
        '<link href="//fonts.org" rel="preconnect">',
        "<img alt=x src=http://pictures.org/x.png>",
    ):
        assert LOADED.search(page)
    assert not LOADED.search('<link rel="canonical" href="https://here.org"><img src="x.png">')
