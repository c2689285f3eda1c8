"""What the page's script adds: zoom, smoothing, files of charts; in a browser."""

from __future__ import annotations

import csv
import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from omg.report import collect, collect_all, render

from .report_data import Shape, write_pipeline
from .test_replay_boards import plane_replay
from .test_report import in_browser

pytestmark = pytest.mark.long

PREPARED = """<script>
const seen = {};
const files = [];
const real = URL.createObjectURL;
URL.createObjectURL = (blob) => { files.push({ blob, name: "" }); return real(blob); };
HTMLAnchorElement.prototype.click = function () { files.at(-1).name = this.download; };
const told = (value) => {
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(value);
  document.body.append(out);
};
</script>"""


def seen_in(tmp_path: Path, html: str, script: str, address: str = "", **size: int) -> Any:
    """What a script in the page tells."""
    page = html.replace("<body>", f"<body>{PREPARED}")
    page = page.replace("</body>", f"<script>(async () => {{{script}}})();</script></body>")
    dom = in_browser(tmp_path, page, address, **size)
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-2000:]
    return json.loads(unescape(found[1]))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    shape = Shape(methods=("D3QN", "OMG tuned"), seeds=3, seen=2, unseen=2, tests=21)
    folder = write_pipeline(tmp_path_factory.mktemp("tools"), shape)
    (folder / "replays" / "plane.json").write_text(json.dumps(plane_replay()))
    film = '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"><rect/></svg>'
    (folder / "replays" / "me-vs-you-0.svg").write_text(film)
    return render(collect([folder]))


CURVE = """
const plot = document.querySelector('[data-chart="curve-test-own-return-mean"]');
const data = JSON.parse(document.getElementById("curve-test-own-return-mean-data").textContent);
const bar = plot.nextElementSibling;
const press = (words) =>
  [...bar.querySelectorAll("button")].find((b) => b.textContent === words).click();
const ends = () => {
  const xs = plot.querySelector("path.line:not(.raw)").getAttribute("d").slice(1).split("L")
    .map((pair) => pair.split(" ").map(Number));
  return [xs[0], xs.at(-1)];
};
const first = plot.querySelector(".picture").innerHTML;
"""


def test_zoom_shows_a_part_and_comes_back(tmp_path: Path, html: str) -> None:
    script = """
    press("+");
    seen.zoomed = ends();
    seen.ticks = [...plot.querySelectorAll("text.tick")].map((t) => t.textContent);
    seen.flagged = plot.hasAttribute("data-zoomed");
    press("−");
    seen.back = plot.querySelector(".picture").innerHTML === first;
    const box = plot.querySelector(".picture").getBoundingClientRect();
    const at = (share) => ({ clientX: box.left + share * box.width, clientY: box.top + 9,
      button: 0, bubbles: true });
    plot.dispatchEvent(new PointerEvent("pointerdown", at(0.5)));
    plot.dispatchEvent(new PointerEvent("pointermove", at(0.75)));
    plot.dispatchEvent(new PointerEvent("pointerup", at(0.75)));
    seen.dragged = ends();
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    seen.escaped = plot.querySelector(".picture").innerHTML === first;
    told(seen);
    """
    seen = seen_in(tmp_path, html, CURVE + script)
    # Half of the range, from a quarter on: the first point lies half a picture to the left.
    assert seen["zoomed"][0][0] == pytest.approx(-500, abs=1)
    assert seen["zoomed"][1][0] == pytest.approx(1500, abs=1)
    assert "200k" in seen["ticks"]
    assert "0" not in seen["ticks"][-5:]
    assert seen["flagged"]
    assert seen["back"]
    assert seen["dragged"][0][0] == pytest.approx(-2000, abs=40)
    assert seen["dragged"][1][0] == pytest.approx(2000, abs=40)
    assert seen["escaped"]


def test_smoothing_is_a_moving_average_and_the_file_keeps_the_raw_values(
    tmp_path: Path, html: str
) -> None:
    script = """
    const slider = document.querySelector("#curves .smoothing input");
    slider.value = "0.5"; slider.dispatchEvent(new Event("input"));
    seen.data = data.series[0].mean;
    seen.y = data.y;
    seen.drawn = plot.querySelector("path.line:not(.raw)").getAttribute("d").slice(1).split("L")
      .map((pair) => Number(pair.split(" ")[1]));
    seen.raw = plot.querySelectorAll("path.raw").length;
    press("CSV");
    seen.csv = await files[0].blob.text();
    seen.name = files[0].name;
    slider.value = "0"; slider.dispatchEvent(new Event("input"));
    seen.back = plot.querySelector(".picture").innerHTML === first;
    told(seen);
    """
    seen = seen_in(tmp_path, html, CURVE + script)
    low, high = seen["y"]
    expected, sum_, total = [], 0.0, 0.0
    for value in seen["data"]:  # weights 1/2, 1/4, … of the present and the past, summing to one
        sum_, total = 0.5 * sum_ + 0.5 * value, 0.5 * total + 0.5
        expected.append(1000 - 1000 * (sum_ / total - low) / (high - low))
    assert seen["drawn"] == pytest.approx(expected, abs=0.1)
    assert seen["raw"] == 2
    assert seen["name"] == "curve-test-own-return-mean.csv"
    head, *rows = seen["csv"].splitlines()
    assert head == "steps,label,seeds,mean,low,high"
    assert len(rows) == 2 * 21
    assert [float(row.split(",")[3]) for row in rows[:21]] == seen["data"]
    assert seen["back"]


def test_every_chart_and_heat_map_can_be_saved(tmp_path: Path, html: str) -> None:
    script = """
    document.querySelectorAll(".panel").forEach((panel) => { panel.hidden = false; });
    const charts = [...document.querySelectorAll("[data-chart]")];
    seen.charts = charts.map((chart) => chart.dataset.chart);
    const buttons = (words) => [...document.querySelectorAll(".tools button")]
      .filter((button) => button.textContent === words);
    buttons("SVG").forEach((button) => button.click());
    buttons("CSV").forEach((button) => button.click());
    seen.files = await Promise.all(files.map(async (f) => [f.name, await f.blob.text()]));
    const count = files.length;
    buttons("PNG")[0].click();
    while (files.length === count) await new Promise((done) => setTimeout(done, 20));
    const bytes = new Uint8Array(await files.at(-1).blob.arrayBuffer());
    seen.png = [files.at(-1).name, ...bytes.slice(0, 4)];
    told(seen);
    """
    seen = seen_in(tmp_path, html, script)
    names = [name for name, _ in seen["files"]]
    assert sorted(names) == sorted(f"{c}.{kind}" for c in seen["charts"] for kind in ("svg", "csv"))
    assert len(names) > 40
    for name, text in seen["files"]:
        if name.endswith(".svg"):
            root = ElementTree.fromstring(text)
            assert root.tag.endswith("svg")
            assert "var(--" not in text
            assert "color-mix" not in text
            assert float(root.attrib["width"]) > 100, name
        else:
            rows = list(csv.reader(text.splitlines()))
            assert len(rows) > 1, name
            assert len({len(row) for row in rows}) == 1, name
    (forest,) = [
        text for name, text in seen["files"] if name.startswith("means-homologue-heldout.c")
    ]
    assert forest.splitlines()[0] == "label,value,low,high,seeds"
    assert seen["png"][1:] == [0x89, 0x50, 0x4E, 0x47]


def test_films_are_not_blocked_and_planes_are_drawn(tmp_path: Path, html: str) -> None:
    script = """
    const film = document.querySelector("#replays img");
    film.loading = "eager";
    await film.decode().catch(() => {});
    seen.film = film.naturalWidth;
    const picker = document.getElementById("replay-select");
    picker.value = String([...picker.options].findIndex((o) => o.textContent.includes("plane")));
    picker.dispatchEvent(new Event("change"));
    const stage = document.getElementById("replay-stage");
    seen.thing = Number(stage.querySelector(".thing").getAttribute("r"));
    seen.me = Number(stage.querySelector(".me").getAttribute("r"));
    seen.checks = stage.querySelectorAll(".board-check").length;
    seen.status = document.getElementById("replay-status").textContent;
    seen.words = document.getElementById("replay-thing-words").textContent;
    told(seen);
    """
    seen = seen_in(tmp_path, html, script)
    assert seen == {
        "film": 7,
        "thing": 30,
        "me": 24,
        "checks": 0,
        "status": "Step 0 of 3. Prediction reached 3 steps later.",
        "words": "landmarks",
    }


def test_two_studies_have_a_player_each(tmp_path: Path) -> None:
    shape = Shape(methods=("OMG tuned",), seeds=1, seen=2, unseen=2, tests=3)
    folders = [write_pipeline(tmp_path / name, shape) for name in "ab"]
    script = """
    document.getElementById("study2-replay-forward").click();
    seen.status = [1, 2].map((n) => document.getElementById(`study${n}-replay-status`).textContent);
    seen.hidden = [0, 1].map((n) => document.getElementById(`study-panel-${n}`).hidden);
    told(seen);
    """
    seen = seen_in(tmp_path, render(collect_all(folders)), script)
    assert [words[:7] for words in seen["status"]] == ["Step 0 ", "Step 1 "]
    assert seen["hidden"] == [False, True]


def test_nothing_is_cut_off_on_a_phone(tmp_path: Path, html: str) -> None:
    """Every table, in every tab and detail, lies within the width of its box."""
    measure = """<script>addEventListener("load", () => {
      document.querySelectorAll(".panel").forEach((panel) => { panel.hidden = false; });
      document.querySelectorAll("details").forEach((part) => { part.open = true; });
      const out = [...document.querySelectorAll(".scroll")].filter(
        (box) => box.clientWidth && box.scrollWidth > box.clientWidth + 1);
      const shown = document.querySelector("table.results td").getBoundingClientRect();
      parent.postMessage(JSON.stringify({ cut: out.map((box) => box.getAttribute("aria-label")),
        wide: document.documentElement.scrollWidth, value: shown.width,
        label: getComputedStyle(document.querySelector("table.results td"), "::before").content,
      }), "*"); });</script></body>"""
    (tmp_path / "inner.html").write_text(html.replace("</body>", measure), encoding="utf-8")
    outer = """<!doctype html><iframe src="inner.html" style="width:390px;height:900px"></iframe>
    <pre id="seen"></pre><script>addEventListener("message", (event) => {
      document.getElementById("seen").textContent = event.data; });</script>"""
    dom = in_browser(tmp_path, outer)
    found = re.search(r'<pre id="seen">(\{.*?\})</pre>', dom, re.DOTALL)
    assert found, dom
    seen = json.loads(unescape(found[1]))
    assert seen["wide"] <= 390
    assert seen["cut"] == []
    assert seen["label"] == '"Own return"'
