"""The report: its numbers are those of the files, and nothing in a file can break the page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omg.config.loader import load_command_line
from omg.evaluation.grouping import ASIDE, settings
from omg.experiment.series import read_curve
from omg.functional import hit_ratio
from omg.report import collect, render, write_report
from omg.report.axes import nice_ticks
from omg.report.charts import thinned
from omg.report.formats import read_crossplay, read_replay
from omg.report.html import number
from omg.report.methods import command
from omg.report.page import asset
from omg.report.replays import hits
from omg.report.runs import final_accuracy, find_runs, read_run
from omg.types import OmgError, RunFailedError
from tests.unit.report_data import (
    Shape,
    config_of,
    crossplay,
    replay,
    write_agents,
    write_json,
    write_pipeline,
    write_prior,
    write_run,
)

VOID = {"meta", "input", "br", "link", "img", "hr"}
HOSTILE = """</script><img src=x onerror=alert(1)>"'&<b>"""


@dataclass
class Table:
    """The words of a table's cells, row by row."""

    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)


class Page(HTMLParser):
    """A page read back: balanced tags are checked while reading."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: list[Table] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, Any] = {}
        self.words: list[str] = []
        self._script = ""
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), (tag, attrs)
        self.elements.append((tag, attributes))
        if tag in VOID:
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append("")
        elif tag == "script":
            self._script = attributes.get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if self._script:
                self.data[self._script] = json.loads(data)
            return
        if self.open and self.open[-1] == "style":
            return
        self.words.append(data)
        if "caption" in self.open:
            self.tables[-1].caption += data
        elif "td" in self.open or "th" in self.open:
            self.tables[-1].rows[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)

    def table(self, caption: str) -> Table:
        (found,) = [table for table in self.tables if table.caption == caption]
        return found

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pipeline(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return render(collect([folder]))


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def page_of(*folders: Path, **options: str) -> Page:
    return Page(render(collect(folders, **options)))


# --- numbers ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_results_are_those_of_the_summary(folder: Path, page: Page) -> None:
    found = read_crossplay(folder / "crossplay.json")
    tables = [t for t in page.tables if t.caption == "Results per method and side of the pool"]
    assert len(tables) == 2  # of line-ups of one opponent, and of mixed ones
    summaries = found.summaries()
    seen = [row.method for row in summaries if row.metric == "own_return"]
    for table, lineup in zip(tables, ("homologue", "mixed"), strict=True):
        side = ""
        checked = 0
        for row in table.rows[1:]:
            if len(row) == 1:
                side = {"Seen opponents": "train", "Unseen opponents": "heldout"}[row[0]]
                continue
            (own,) = [
                s
                for s in summaries
                if (s.method, s.split, s.lineup, s.metric)
                == (row[0].strip(), side, lineup, "own_return")
            ]
            assert row[1] == f"{own.mean:.3f}[{own.mean_low:.3f}, {own.mean_high:.3f}]"
            assert row[2] == f"{own.iqm:.3f}"
            checked += 1
        assert checked == len(seen) / 2 > 0
    head = tables[0].rows[0]
    assert head[:4] == ["Method", "Own return", "IQM", "Own discounted return"]
    assert {"Steps per episode", "Food collected"} <= set(head)


@pytest.mark.long
def test_it_says_which_differences_exclude_zero(folder: Path, page: Page) -> None:
    rows = [
        row
        for row in read_crossplay(folder / "crossplay.json").differences()
        if (row.metric, row.lineup, row.split) == ("own_return", "homologue", "heldout")
    ]
    clear = [row for row in rows if row.low is not None and row.low > 0]
    inside = [row for row in rows if row not in clear]
    assert clear
    assert inside
    sentence = next(
        words for words in _list_items(page) if words.startswith("Unseen opponents, own return")
    )
    excluded, _, included = sentence.partition("includes zero")
    for row in clear:
        assert f"{row.method} (+{row.difference:.3f})" in excluded
        assert row.method not in included
    for row in inside:
        assert row.method in included
        assert row.method not in excluded


def _list_items(page: Page) -> list[str]:
    return re.findall(r"(?:Seen|Unseen) opponents, own return: [^.]*(?:\.\d[^.]*)*\.", page.text)


def test_a_difference_below_zero_is_named_with_its_sign(tmp_path: Path) -> None:
    content = crossplay(Shape(methods=("A", "B"), seeds=3))
    for cell in content["cells"]:
        seed = int(cell["agent"][-1])
        cell["metrics"]["own_return"] = (1.0 if cell["agent"][0] == "a" else 0.5) + 0.01 * seed
    write_json(tmp_path / "crossplay.json", content)
    assert "the difference from A excludes zero for B (−0.500)." in page_of(tmp_path).text


def test_an_oracle_below_its_baseline_is_remarked_upon(tmp_path: Path) -> None:
    content = crossplay(Shape(methods=("D3QN", "Oracle"), seeds=3))
    for agent in content["agents"]:
        agent["am_model"] = "oracle_am" if agent["method"] == "Oracle" else "none_am"
    for cell in content["cells"]:
        better = (cell["agent"][0] == "o") == (cell["split"] == "train")
        cell["metrics"]["own_return"] = 2.0 if better else 1.0
    write_json(tmp_path / "crossplay.json", content)
    text = page_of(tmp_path).text
    assert "Unseen opponents: Oracle is worse than D3QN (1.000 against 2.000)" in text
    assert "Seen opponents: Oracle is worse" not in text


def test_two_seeds_have_no_interval_and_each_is_shown(tmp_path: Path) -> None:
    write_pipeline(tmp_path, Shape(methods=("D3QN", "OMG tuned"), seeds=2, tests=4))
    text = render(collect([tmp_path]))
    page = Page(text)
    table = next(t for t in page.tables if t.caption.startswith("Results per method"))
    found = read_crossplay(tmp_path / "crossplay.json").summaries()[0]
    a, b = found.seeds
    assert table.rows[2][1] == f"{(a + b) / 2:.3f}seeds {a:.3f}, {b:.3f}"
    assert "too few seeds for an interval: OMG tuned" in page.text
    assert "excludes zero" not in page.text
    assert 'class="band' not in text
    assert text.count('class="line c0 each"') >= 2
    last = page.table("Own return over training").rows[1][-1]
    assert re.fullmatch(r"[\d.]+ \([\d.]+, [\d.]+\)", last)


def test_axes_and_bands_stay_within_what_a_metric_can_be(tmp_path: Path) -> None:
    for seed, share in ((1, 0.2), (2, 0.9), (3, 1.0)):
        records = [
            {"t_env": t, "test_win_rate_mean": share, "test_own_return_mean": share} for t in (0, 9)
        ]
        write_run(tmp_path / f"s{seed}", config_of("D3QN", seed), records)
    page = page_of(tmp_path)
    (won,) = page.data["curve-test-win-rate-mean-data"]["series"]
    assert (won["low"][0], won["high"][0]) == (0, 1)
    assert page.data["curve-test-win-rate-mean-data"]["y"] == [0, 1]
    (own,) = page.data["curve-test-own-return-mean-data"]["series"]
    assert own["high"][0] > 1  # a return may be anything
    assert "[0.000, 1.000]" in page.table("Last tests per method").rows[1][-1]


def test_the_permutation_test_is_shown_and_explained(folder: Path, page: Page) -> None:
    found = read_crossplay(folder / "crossplay.json").permutations()
    row = next(
        r for r in found if (r.method, r.split, r.lineup) == ("OMG tuned", "heldout", "homologue")
    )
    words = f"OMG tuned {row.mean:.3f} → {row.permuted:.3f} (unseen opponents)"
    assert words in page.text
    assert "does not get worse, it does not use what it infers" in page.text


def test_profiles_and_the_probability_of_improvement_are_shown(folder: Path, page: Page) -> None:
    found = read_crossplay(folder / "crossplay.json")
    data = page.data["profile-homologue-heldout-data"]
    (series,) = [s for s in data["series"] if s["label"] == "OMG tuned"]
    cells = [
        c.metrics["own_return"] or 0.0
        for c in found.cells
        if c.agent.startswith("omg_tuned") and (c.split, c.lineup) == ("heldout", "homologue")
    ]
    middle = series["steps"][20]
    assert series["mean"][20] == pytest.approx(np.mean(np.array(cells) > middle), abs=1e-3)
    (row,) = [
        r
        for r in found.differences()
        if (r.method, r.split, r.lineup, r.metric)
        == ("OMG tuned", "heldout", "homologue", "own_return")
    ]
    assert f"OMG tuned {row.higher:.2f} (unseen opponents)" in page.text


def test_a_profile_is_drawn_from_nobody_to_all(tmp_path: Path) -> None:
    content = crossplay(Shape(methods=("A", "B"), seeds=3))
    for cell in content["cells"]:  # half of all scores are equal and the lowest
        cell["metrics"]["own_return"] = 2.0 if cell["agent"][-1] == "1" else 1.0
    write_json(tmp_path / "crossplay.json", content)
    page = page_of(tmp_path)
    assert page.data["profile-homologue-heldout-data"]["y"] == [0, 1]
    assert "everywhere is better for every threshold" in page.text
    write_json(tmp_path / "crossplay.json", {**content, "metric": "ep_length"})
    assert "everywhere is worse for every threshold" in page_of(tmp_path).text


def test_methods_with_equal_means_are_all_bold_or_none(tmp_path: Path) -> None:
    content = crossplay(Shape(methods=("A", "B", "C"), seeds=3))
    for cell in content["cells"]:
        cell["metrics"]["own_return"] = 1.0 if cell["agent"][0] in "ab" else 0.5
        cell["metrics"]["ep_length"] = 7.0
    write_json(tmp_path / "crossplay.json", content)
    text = render(collect([tmp_path]))
    assert text.count("<strong>1.000</strong>") % 2 == 0 < text.count("<strong>1.000</strong>")
    assert "<strong>0.500</strong>" not in text
    assert "<strong>7.000</strong>" not in text


def test_captions_say_what_was_run(tmp_path: Path) -> None:
    write_pipeline(tmp_path, Shape(methods=("D3QN", "OMG tuned"), seeds=3, tests=3))
    content = json.loads((tmp_path / "crossplay.json").read_text())
    content |= {"replays": 7, "metric": "discounted_return", "seed": 5}
    write_json(tmp_path / "crossplay.json", content)
    data = collect([tmp_path])
    assert data.metric == "test_own_discounted_return_mean"  # as the cross-play was asked
    text = Page(render(data)).text
    assert (
        "omg crossplay --episodes=64 --seed=5 --permute --greedy --baseline=D3QN --replays=7"
        in text
    )
    assert "Recorded by omg crossplay --replays=7." in text
    assert "Hit ratio: states that the agent inferred and the opponents were in later" in text
    assert "share one prior" in text
    assert "+ 145,000 prior" in text
    assert "checkpoints come from" not in text  # one of each run
    content["opponents"][1]["run"] = content["opponents"][0]["run"]
    write_json(tmp_path / "crossplay.json", content)
    assert "opponents' 12 checkpoints come from 11 runs." in page_of(tmp_path).text
    for opponent in content["opponents"]:
        opponent["run"] = "one"
    write_json(tmp_path / "crossplay.json", content)
    assert "checkpoints come from one run." in page_of(tmp_path).text


def test_the_steps_of_a_run_say_why_they_are_more_than_t_max(tmp_path: Path) -> None:
    records = [{"t_env": 120_064, "test_own_return_mean": 1.0}]
    write_run(tmp_path / "r", config_of("D3QN", 1, t_max=60_000), records)
    text = page_of(tmp_path).text
    assert "t_max 60,000 for each of 2 seats, and the round of all copies was finished" in text


def test_the_page_says_what_the_runs_were_made_with(tmp_path: Path) -> None:
    for seed, torch_version in ((1, "2.13.0"), (2, "2.14.0")):
        run = tmp_path / f"r{seed}"
        write_run(run, config_of("D3QN", seed), [{"t_env": 1, "test_own_return_mean": 1.0}])
        session = {"omg": "0.1.0", "commit": "abc+changes", "packages": {"torch": torch_version}}
        write_json(run / "run.json", {"id": "x", "sessions": [{**session, "kernels": False}, 7]})
    text = page_of(tmp_path).text
    made = text[text.index("What the runs were made with") :]
    for words in ("abc+changes", "2.13.0, 2.14.0", "off"):
        assert words in made


def test_the_command_names_the_nearest_environment_config(tmp_path: Path) -> None:
    words = ["--config=d3qn", "--env-config=foraging_coop", "--label=my label"]
    config = json.loads(json.dumps(load_command_line(words).config.as_dict()))
    write_run(tmp_path / "r", config, [{"t_env": 1, "test_own_return_mean": 1.0}])
    (run,) = collect([tmp_path]).agents
    assert command(run) == (
        f"omg train --config=d3qn --env-config=foraging_coop --seed={run.seed} '--label=my label'"
    )


def test_runs_that_differ_in_a_setting_are_two_methods(tmp_path: Path) -> None:
    for seed, lr in ((1, 0.001), (2, 0.001), (1, 0.01)):
        config = config_of("D3QN", seed, lr=lr)
        write_run(tmp_path / f"{seed}-{lr}", config, [{"t_env": 1, "test_own_return_mean": lr}])
    data = collect([tmp_path])
    assert set(data.methods) == {"D3QN, lr=0.001", "D3QN, lr=0.01"}
    assert len(data.runs_of("D3QN, lr=0.001")) == 2
    write_run(
        tmp_path / "again",
        config_of("D3QN", 2, lr=0.001),
        [{"t_env": 1, "test_own_return_mean": 1}],
    )
    assert "are both 'D3QN, lr=0.001' with seed 2" in refused(tmp_path)


def test_an_evaluation_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    record = [{"t_env": 1, "test_own_return_mean": 1.0}]
    write_run(tmp_path / "run", config_of("D3QN", 1), record)
    write_run(tmp_path / "eval", config_of("D3QN", 1, evaluate=True), record)
    data = collect([tmp_path])
    assert [run.path.name for run in data.agents] == ["run"]
    assert data.notes == ("eval is an evaluation of another run and is left out.",)


def test_a_cell_of_the_heat_map_is_the_mean_over_seeds(folder: Path, page: Page) -> None:
    found = read_crossplay(folder / "crossplay.json")
    tables = [t for t in page.tables if t.caption == "Own return, Unseen opponents"]
    per_method, per_agent = tables
    methods = per_method.rows[0][1:]
    agents = {agent.id: agent for agent in found.agents}
    assert [row[0] for row in per_method.rows[-2:]] == ["mean", "mixed line-ups"]
    for row in per_method.rows[1:-2]:
        for method, shown in zip(methods, row[1:], strict=True):
            values = [
                cell.metrics["own_return"]
                for cell in found.cells
                if (cell.opponent, cell.split) == (row[0], "heldout")
                and agents[cell.agent].method == method
            ]
            assert len(values) == 3
            assert shown == f"{np.mean(values):.3f}"
    assert per_agent.rows[1] == ["opponent", *["s1", "s2", "s3"] * len(methods)]
    first = found.cells[0]
    of_seed = next(t for t in page.tables[::-1] if t.caption == "Own return, Seen opponents")
    assert of_seed.rows[2][1] == f"{first.metrics['own_return']:.3f}"


def test_cells_tell_their_value_on_hover(page: Page) -> None:
    titles = [cell["title"] for cell in page.all("td") if cell.get("title")]
    assert any(re.fullmatch(r"OMG tuned with iql-s11-final: \d\.\d{3}", str(t)) for t in titles)


def test_curves_are_means_and_bands_over_seeds(folder: Path, page: Page) -> None:
    data = page.data["curve-test-own-return-mean-data"]
    runs = [folder / "agents" / f"omg_tuned-s{seed}" for seed in (1, 2, 3)]
    curves = [read_curve(run, "test_own_return_mean") for run in runs]
    steps, mean = curves[0].steps, np.mean([c.values for c in curves], axis=0)
    spread = 4.30265 * np.std([c.values for c in curves], axis=0, ddof=1) / np.sqrt(3)
    (series,) = [s for s in data["series"] if s["label"] == "OMG tuned"]
    assert series["steps"] == steps.tolist()
    assert series["mean"] == pytest.approx(mean, rel=1e-3)
    assert series["low"] == pytest.approx(mean - spread, rel=2e-3)
    assert series["high"] == pytest.approx(mean + spread, rel=2e-3)
    rows = page.table("Own return over training").rows
    assert rows[0] == ["steps", "0", "125k", "250k", "375k", "500k"]
    assert rows[-1][0].strip() == "OMG tuned"
    low, high = mean[-1] - spread[-1], mean[-1] + spread[-1]
    assert rows[-1][-1] == f"{mean[-1]:.3f} [{low:.3f}, {high:.3f}]"


def test_every_kind_of_curve_is_there(page: Page) -> None:
    wanted = ["curve-test-hit-ratio-mean", "curve-test-ep-length-mean", "loss-loss", "loss-am-loss"]
    wanted += ["loss-am-recon", "loss-am-kl", "prior-prior-accuracy", "loss-am-active-dims"]
    assert {f"{name}-data" for name in wanted} <= set(page.data)


def test_last_shares_of_k_are_the_mean_of_the_seeds(folder: Path, html: str) -> None:
    for k in range(1, 6):
        runs = [folder / "agents" / f"omg_tuned-s{seed}" for seed in (1, 2, 3)]
        last = np.mean([read_curve(run, f"subgoal_k{k}").values[-1] for run in runs])
        assert re.search(rf"OMG tuned: last shares of k:[^<]*k={k} {100 * last:.0f} %", html)


def test_shares_of_k_of_a_single_record_are_bars_only(tmp_path: Path) -> None:
    records = [{"t_env": 800, "test_own_return_mean": 1.0, "subgoal_k1": 0.25, "subgoal_k2": 0.75}]
    write_run(tmp_path / "r", config_of("OMG tuned", 1), records)
    text = render(collect([tmp_path]))
    assert "last shares of k: k=1 25 %, k=2 75 %" in text
    assert "k over training" not in text
    assert "over training (k = 1" not in text


def test_a_collapsed_model_is_named(page: Page) -> None:
    assert "vary at the end for OMG paper: the model may have collapsed" in page.text


def test_a_priors_accuracy_is_that_of_the_finished_one(tmp_path: Path) -> None:
    write_prior(tmp_path / "prior")
    ((path, role),) = find_runs(tmp_path / "prior")
    run = read_run(path, role)
    assert run is not None
    assert final_accuracy(run) == pytest.approx(0.99, abs=0.02)  # the last record
    last = tmp_path / "prior" / "models" / "last"
    last.mkdir(parents=True)
    (last / "meta.json").write_text('{"prior_accuracy": 0.5}')
    assert final_accuracy(run) == 0.5
    (last / "meta.json").write_text('{"prior_accuracy": 0.0, "prior_explained": 0.7}')
    assert final_accuracy(run, "prior_explained") == 0.7


def test_long_curves_are_thinned_with_both_ends_kept(tmp_path: Path) -> None:
    records = [{"t_env": i, "wall_s": 1.0, "test_own_return_mean": i} for i in range(5001)]
    write_run(tmp_path / "run", config_of("D3QN", 1), records)
    (series,) = page_of(tmp_path).data["curve-test-own-return-mean-data"]["series"]
    assert len(series["steps"]) == 300
    assert (series["steps"][0], series["steps"][-1]) == (0, 5000)
    assert thinned(3).tolist() == [0, 1, 2]
    assert [len(thinned(n)) for n in (299, 300, 301, 600)] == [299, 300, 300, 300]


def test_opponents_are_listed_with_their_side(page: Page) -> None:
    rows = page.table("Members of the pool").rows
    assert rows[1][:5] == ["iql-s1-final", "iql", "1", "final", "seen"]
    assert rows[-1][:5] == ["nearest_food-heldout", "script", "–", "noise 0.1", "unseen"]
    assert rows[1][5] == "0.800 (step 8,000)"  # when it was saved is not known: the last test


def test_every_checkpoint_has_the_return_of_its_own_test(tmp_path: Path) -> None:
    write_pipeline(tmp_path, Shape(methods=("D3QN",), seeds=1, tests=2))
    (tmp_path / "crossplay.json").unlink()
    member = {"run": "iql-s1", "algorithm": "iql", "seed": 1, "split": "train"}
    members = [
        member | {"id": "iql-s1-4000", "skill": "middle", "env_steps": 4000},
        member | {"id": "iql-s1-7990", "skill": "final"},  # a file without steps: the id says it
    ]
    write_json(tmp_path / "pool" / "pool.json", {"format": 1, "members": members})
    rows = page_of(tmp_path).table("Members of the pool").rows
    assert rows[0][5] == "team return in its test"
    assert [row[5] for row in rows[1:]] == ["0.400", "0.800 (step 8,000)"]


@pytest.mark.long
def test_the_command_trains_with_the_same_settings(folder: Path) -> None:
    for run in collect([folder]).agents:
        words = shlex.split(command(run))
        assert words[:2] == ["omg", "train"]
        assert "--config=" in words[2]
        again = load_command_line(words[2:]).config.as_dict()
        wanted = {k: v for k, v in run.config.items() if k not in ASIDE}
        assert {k: v for k, v in again.items() if k not in ASIDE} == wanted
        assert (again["seed"], again["label"]) == (run.seed, run.method)


def test_settings_that_differ_between_methods_are_listed(page: Page) -> None:
    rows = page.table("Settings in which the methods differ").rows
    values = {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[1:]}
    assert values["am_model"]["Naive OM"] == "base_am"
    assert values["subgoal_dim"] == {**dict.fromkeys(rows[0][1:], "64"), "OMG tuned": "16"}
    assert not ASIDE & set(values)
    assert "gamma" not in values


def test_what_may_be_private_stays_out(tmp_path: Path) -> None:
    config = config_of("D3QN", 1, mongo_url="mongodb://lab-host/x", local_results_path="/home/me")
    write_run(tmp_path / "run", config, [{"t_env": 1, "test_own_return_mean": 1.0}])
    (run,) = collect([tmp_path]).agents
    assert "mongo_url" not in settings(run.config)
    text = render(collect([tmp_path]))
    assert "lab-host" not in text
    assert "/home/me" not in text


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (-0.25, "−0.250"), (12345.6, "12,346"), (0.00012, "0.000120")]
)
def test_numbers_are_shown_with_a_real_minus_and_few_digits(
    value: float | None, shown: str
) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (3.4, 3.41), (-5, 7e6), (2, 2), (0, 0), (1e-9, 2e-9)]
)
def test_ticks_are_round_and_span_their_range(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))


def test_ticks_leave_out_what_a_metric_cannot_be() -> None:
    assert nice_ticks(1.0, 1.0, within=(0.0, 1.0)) == [0.9, 0.95, 1.0]
    assert nice_ticks(0.0, 0.0, within=(0.0, 1.0))[0] == 0.0


# --- replays ---------------------------------------------------------------------------------


def test_a_replay_holds_what_was_recorded(folder: Path, page: Page) -> None:
    recorded = json.loads((folder / "replays" / "omg_tuned-s1.json").read_text())
    shown = page.data["replay-data"][0]
    assert shown["name"] == "omg_tuned-s1"  # those with inferred places come first
    assert shown["players"] == [frame["players"] for frame in recorded["frames"]]
    assert shown["others"] == [1]
    assert np.allclose(shown["subgoals"], recorded["subgoals"], atol=0.005)
    assert page.data["replay-data"][1]["hits"] is None


def test_a_prediction_is_reached_if_that_opponent_stands_there_later(tmp_path: Path) -> None:
    content = replay("a", "OMG", seed=1, subgoals=True, steps=4)
    path = [(0, 0), (0, 1), (0, 2), (0, 2), (0, 3)]  # s1 s2 s3 s3 s4
    for frame, (row, col) in zip(content["frames"], path, strict=True):
        frame["players"][1] = [row, col, 1]
    content["subgoals"] = [[[0.3, 1.6]], [[0, 0]], [[0, 2]], [[7, 7]]]
    write_json(tmp_path / "replays" / "r.json", content)
    found = hits(read_replay(tmp_path / "replays" / "r.json"))
    assert found == [[2], [None], [1], [None]]
    cells = [(0, 2), (0, 0), (0, 2), (7, 7)]
    reached = {cell for cell, (later,) in zip(cells, found, strict=True) if later}
    assert len(reached) / len(path) == hit_ratio(cells, path)


def test_predictions_belong_to_the_seats_behind_the_learning_one(tmp_path: Path) -> None:
    content = replay("a", "OMG", seed=1, subgoals=True, steps=1)
    for frame in content["frames"]:
        frame["players"] = [[0, 0, 1], [1, 1, 1], [2, 2, 1]]
        frame["score"] = [0, 0, 0]
    content |= {"players": 3, "seat": 1, "actions": [[0, 0, 0]]}
    content["subgoals"] = [[[2, 2], [1, 1]]]  # of seat 2, then of seat 0
    write_json(tmp_path / "replays" / "r.json", content)
    assert hits(read_replay(tmp_path / "replays" / "r.json")) == [[1, None]]
    assert page_of(tmp_path).data["replay-data"][0]["others"] == [2, 0]


# --- safe and accessible ---------------------------------------------------------------------


def test_the_page_is_self_contained(html: str, page: Page) -> None:
    assert not re.search(r"https?://|//[a-z]+\.", html)
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert str(attributes.get("href", "#")).startswith("#")
    assert "url(" not in html
    assert "@import" not in html


def test_ids_are_unique_and_references_lead_somewhere(page: Page) -> None:
    ids = [str(a["id"]) for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-controls", "for"):
            for name in str(attributes.get(key) or "").split():
                assert name in ids, name
        href = attributes.get("href")
        assert href is None or href[1:] in ids
    for name in re.findall(r'byId\("([\w-]+)"\)', asset("report.js")):
        assert name in ids, name


def test_every_picture_has_words(page: Page) -> None:
    pictures = [a for a in page.all("svg") if a.get("role") == "img"]
    assert len(pictures) > 20
    assert all(a.get("aria-labelledby") or a.get("aria-label") for a in pictures)
    others = [a for a in page.all("svg") if a.get("role") != "img"]
    assert all(a.get("aria-hidden") or a.get("class") == "marks" for a in others)


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    name = HOSTILE
    shape = Shape(methods=(name, "B"), seeds=2, seen=2, unseen=2, tests=3)
    for index, method in enumerate(shape.methods):
        for seed in (1, 2):
            records = [{"t_env": i, "test_own_return_mean": 1.0, name: 1.0} for i in (0, 1)]
            config = config_of(method, seed, opponent_pool=name)
            write_run(tmp_path / "agents" / f"m{index}-s{seed}", config, records)
    content = crossplay(shape)
    for opponent in content["opponents"]:
        opponent |= {"id": name, "algorithm": name, "skill": name}
    for cell in content["cells"]:
        cell["opponent"] = name
        cell["metrics"][name] = 1.0
    for agent in content["agents"]:
        agent["run"] = ""
    write_json(tmp_path / "crossplay.json", content)
    recorded = replay(name, name, seed=1, subgoals=True) | {"opponent": name}
    write_json(tmp_path / "replays" / "r.json", recorded)
    text = render(collect([tmp_path], title=name))
    page = Page(text)
    assert "<img" not in text
    assert not page.all("img")
    assert not page.all("b")
    scripts = page.all("script")
    assert [s for s in scripts if s.get("type") != "application/json"] == [{}]
    assert page.data["replay-data"][0]["method"] == name
    assert name in page.text
    assert len(page.table("Members of the pool").rows) == 5


def test_colours_have_enough_contrast_in_both_themes() -> None:
    css = asset("style.css")
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", css.partition("@media")[0]))
    dark_block = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', css, re.DOTALL)
    assert dark_block
    dark = light | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark_block[1]))
    media = re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\}', css, re.DOTALL)
    assert media
    assert dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", media[1])) == {
        k: v for k, v in dark.items() if f"--{k}:" in dark_block[1]
    }
    for theme in (light, dark):
        for text, ground in [
            *(("ink", g) for g in ("page", "card", "tint", "heat")),
            *(("soft", g) for g in ("page", "card")),
            *(("accent", g) for g in ("page", "card")),
            ("on-accent", "accent"),
            *(("card", g) for g in ("apple", *(f"o{i}" for i in range(1, 8)))),
        ]:
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
        for slot in range(8):  # lines and points
            assert contrast(theme[f"c{slot}"], theme["card"]) >= 3.0, slot


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.long
def test_a_large_study_stays_below_three_megabytes(tmp_path: Path) -> None:
    names = (*(f"Method {i}" for i in range(7)), "OMG a")
    shape = Shape(methods=names, seeds=3, seen=20, unseen=30, tests=320)
    write_agents(tmp_path / "agents", shape)
    write_json(tmp_path / "crossplay.json", crossplay(shape))
    for i in range(30):
        content = replay(f"a{i}", "OMG a", seed=i, subgoals=True, steps=50)
        write_json(tmp_path / "replays" / f"r{i:02}.json", content)
    data = collect([tmp_path])
    assert len(render(data).encode()) < 3_000_000
    assert len(data.replays) == 24
    assert "30 replays were found; the first 24 are shown." in data.notes


# --- what is missing -------------------------------------------------------------------------


def test_runs_alone_show_their_last_tests(tmp_path: Path) -> None:
    write_agents(tmp_path, Shape(methods=("D3QN", "Naive OM"), seeds=3, tests=5))
    page = page_of(tmp_path)
    rows = page.table("Last tests per method").rows
    last = [
        read_curve(tmp_path / f"d3qn-s{s}", "test_own_return_mean").values[-1] for s in (1, 2, 3)
    ]
    assert rows[1][2].startswith(f"{np.mean(last):.3f}[")
    for sentence in (
        "No crossplay.json was found",
        "No cross-play was found",
        "No replays were found",
        "No pool was found",
        "No run logged the pre-training of a prior",
    ):
        assert sentence in page.text


def test_crossplay_alone_is_enough(tmp_path: Path) -> None:
    write_json(tmp_path / "crossplay.json", crossplay(Shape(seeds=2)))
    page = page_of(tmp_path)
    assert "No run logged tests" in page.text
    assert [t for t in page.tables if t.caption == "Own return, Seen opponents"]
    assert "Fewer than three seeds have no interval, so each seed is shown." in page.text


def test_replays_alone_are_enough(tmp_path: Path) -> None:
    write_json(tmp_path / "replays" / "a.json", replay("a", "OMG", seed=1, subgoals=True))
    page = page_of(tmp_path)
    assert len(page.data["replay-data"]) == 1
    assert "Recorded episodes" in page.text


@pytest.mark.long
def test_one_method_is_compared_with_the_defaults(tmp_path: Path) -> None:
    write_pipeline(tmp_path, Shape(methods=("OMG tuned",), seeds=2, tests=4))
    page = page_of(tmp_path)
    assert "OMG tuned was trained on Foraging-8x8-2p-3f-v3 with 2 seeds" in page.text
    assert "compares no method with a baseline" in page.text
    rows = page.table("Settings of OMG tuned that differ from default.yaml").rows
    assert ["subgoal_dim", "16", "64"] in rows


@pytest.mark.long
def test_one_seed_has_no_band_and_says_so(tmp_path: Path) -> None:
    write_pipeline(tmp_path, Shape(seeds=1, tests=4))
    text = render(collect([tmp_path]))
    page = Page(text)
    assert "One seed each, so there is no band: the curves describe these runs only." in page.text
    assert "There is one seed: the numbers describe this run only." in page.text
    assert "excludes zero" not in page.text
    assert 'class="band' not in text
    assert all(s["low"] is None for s in page.data["loss-loss-data"]["series"])


def test_a_method_with_one_seed_among_others_is_named(tmp_path: Path) -> None:
    write_agents(tmp_path, Shape(methods=("D3QN", "Control"), seeds=2, tests=4))
    shutil.rmtree(tmp_path / "control-s2")
    page = page_of(tmp_path)
    assert "One seed, so no band: Control." in page.text
    assert "with 1 to 2 seeds each" in page.text


def test_a_run_that_logged_nothing_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    write_agents(tmp_path, Shape(methods=("D3QN",), seeds=2, tests=3))
    (tmp_path / "d3qn-s2" / "metrics.jsonl").unlink()
    data = collect([tmp_path])
    assert [run.seed for run in data.agents] == [1]
    assert data.notes == ("d3qn-s2 has logged nothing yet and is left out.",)
    assert data.notes[0] in Page(render(data)).text


def test_runs_of_several_tasks_are_told_apart(tmp_path: Path) -> None:
    for key in ("Foraging-5x5-2p-1f-v3", "Foraging-8x8-2p-3f-v3"):
        config = config_of("D3QN", 1, env_args={"key": key})
        write_run(tmp_path / key, config, [{"t_env": 1, "test_own_return_mean": 1.0}])
    assert collect([tmp_path]).methods == (
        "D3QN (Foraging-5x5-2p-1f-v3)",
        "D3QN (Foraging-8x8-2p-3f-v3)",
    )


def test_a_run_given_twice_is_counted_once(tmp_path: Path) -> None:
    write_agents(tmp_path, Shape(methods=("D3QN",), seeds=1, tests=3))
    assert len(collect([tmp_path, tmp_path / "d3qn-s1"]).agents) == 1


@pytest.mark.long
def test_runs_are_called_as_the_crossplay_calls_them(tmp_path: Path) -> None:
    shape = Shape(methods=("D3QN", "Control"), seeds=1, tests=3)
    write_pipeline(tmp_path, shape)
    content = json.loads((tmp_path / "crossplay.json").read_text())
    content["agents"][1]["method"] = "Control, renamed"
    write_json(tmp_path / "crossplay.json", content)
    data = collect([tmp_path])
    assert data.methods == ("D3QN", "Control, renamed")
    assert {run.method for run in data.agents} == set(data.methods)


def test_team_runs_without_own_returns_show_the_teams(tmp_path: Path) -> None:
    write_run(tmp_path / "r", config_of("x", 1), [{"t_env": 1, "test_return_mean": 2.0}])
    assert collect([tmp_path]).metric == "test_return_mean"


@pytest.mark.long
def test_the_chosen_metric_comes_first(folder: Path) -> None:
    page = page_of(folder, metric="test_ep_length_mean")
    curves = [name for name in page.data if name.startswith("curve-")]
    assert curves[0] == "curve-test-ep-length-mean-data"
    assert "Unseen opponents, steps per episode: the difference from D3QN" in page.text


# --- damaged files ---------------------------------------------------------------------------


def refused(folder: Path) -> str:
    with pytest.raises(OmgError) as caught:
        collect([folder])
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": 1, "env"', "is damaged"),
        ('{"format": 2}', "has format 2, this version reads 1"),
        ("[]", "expected"),
        ('{"format": 1, "env": "x", "agents": [], "opponents": []}', "lacks the field 'cells'"),
        (
            '{"format": 1, "env": "x", "agents": [{"id": "a", "method": "m", "seed": "b"}], '
            '"opponents": [], "cells": []}',
            "for 'seed' of agent 1",
        ),
        (
            '{"format": 1, "env": "x", "agents": [], "opponents": [], "cells": [{"agent": "a", '
            '"opponent": "o", "lineup": "l", "split": "s", "episodes": 1, "metrics": {}}]}',
            "games of 'a', which is not among its agents",
        ),
    ],
)
def test_a_damaged_crossplay_is_refused_in_a_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "crossplay.json").write_text(text)
    message = refused(tmp_path)
    assert message.startswith(str(tmp_path / "crossplay.json"))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 3}, "has format 3, this version reads 1"),
        ({"seat": 2}, "the learning seat 2 among 2 players"),
        ({"frames": []}, "has no frames"),
        ({"actions": []}, "has 0 rows of actions for 24 steps"),
        ({"subgoals": [[[0, 0]]]}, "has 1 rows of subgoals for 24 steps"),
        ({"subgoals": [[]] * 24}, "does not have 1 subgoals in every row"),
        ({"players": 3}, "does not show 3 players in every frame"),
        ({"field_size": [8, 10**9]}, "has a field of 8 x 1000000000 cells"),
    ],
)
def test_a_replay_that_does_not_fit_together_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    content = replay("a", "OMG", seed=1, subgoals=True) | change
    write_json(tmp_path / "replays" / "r.json", content)
    assert words in refused(tmp_path)


def test_a_value_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    content = crossplay(Shape(methods=("A", "B"), seeds=1))
    content["cells"][0]["metrics"]["own_return"] = float("nan")
    write_json(tmp_path / "crossplay.json", content)
    assert "'metrics.own_return' of cell 1" in refused(tmp_path)


def test_metrics_damaged_in_the_middle_are_refused_but_a_cut_last_line_is_not(
    tmp_path: Path,
) -> None:
    write_agents(tmp_path, Shape(methods=("D3QN",), seeds=1, tests=3))
    path = tmp_path / "d3qn-s1" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, '{"t_env": 9']))
    assert len(collect([tmp_path]).agents) == 1
    path.write_text("\n".join([lines[0], "{", *lines[1:]]))
    assert "is damaged in line 2" in refused(tmp_path)
    path.write_text("[1]\n{}\n")
    assert "has no record of metrics in line 1" in refused(tmp_path)


def test_a_folder_without_anything_is_refused(tmp_path: Path) -> None:
    assert "no runs with metrics" in refused(tmp_path)
    assert "is not a folder" in refused(tmp_path / "missing")


def test_two_crossplays_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        write_json(tmp_path / name / "crossplay.json", crossplay(Shape(methods=("A",), seeds=1)))
    with pytest.raises(OmgError, match="There are 2 cross-play tables"):
        collect([tmp_path / "a", tmp_path / "b"])


def test_the_old_page_survives_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "crossplay.json", crossplay(Shape(methods=("A",), seeds=1)))
    out = tmp_path / "report.html"
    out.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(RunFailedError, match="No space left on device"):
            write_report([tmp_path], out)
    assert out.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"crossplay.json", "report.html"}
    write_report([tmp_path], out)
    assert out.read_text().startswith("<!doctype html>")


# --- the script ------------------------------------------------------------------------------


def test_style_and_script_are_shipped_with_the_package() -> None:
    listed = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for suffix in ("css", "js"):
        assert f'"report/*.{suffix}"' in listed
    assert "</script" not in asset("report.js")
    assert "</style" not in asset("style.css")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "report.js"
    path.write_text(asset("report.js"))
    done = subprocess.run(["node", "--check", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ACTIONS = """
<script>
const read = () => document.getElementById("replay-status").textContent;
const click = (id) => document.getElementById(id).click();
const key = (name) => document.getElementById("replay-focus").dispatchEvent(
  new KeyboardEvent("keydown", { key: name, bubbles: true }));
const seen = [];
const see = (what) => seen.push(what + ": " + read());
see("start");
click("replay-forward"); see("forward");
click("replay-back"); see("back");
key("ArrowRight"); key("ArrowRight"); see("arrows");
key("End"); see("end");
key("Home"); see("home");
const slider = document.getElementById("replay-slider");
slider.value = "9"; slider.dispatchEvent(new Event("input")); see("slider");
seen.push("ghosts: " + document.querySelectorAll("#replay-stage .ghost").length);
click("theme"); seen.push("theme: " + document.documentElement.dataset.theme);
const panels = () => [...document.querySelectorAll("#curves .panel")].map((p) => p.hidden);
seen.push("panels: " + panels().filter((hidden) => !hidden).length);
click("curve-tab-1"); seen.push("second: " + !panels()[1]);
const toggle = document.querySelector("#curves [data-toggle='0']");
toggle.click();
seen.push("hidden: " + document.querySelectorAll("#curves path[data-off]").length);
const picker = document.getElementById("replay-select");
picker.value = "1"; picker.dispatchEvent(new Event("change")); see("other");
document.getElementById("replay-speed").value = "4";
click("replay-play"); seen.push("playing: " + document.getElementById("replay-play").textContent);
setTimeout(() => {
  see("played");
  click("replay-play");
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
}, 700);
</script>
"""


def in_browser(tmp_path: Path, html: str, address: str = "", *, width: int = 1280) -> str:
    """The page as a browser leaves it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs a browser, which users of the package need not have")
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [browser, *words, "--dump-dom", f"file://{path}{address}"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    if not done.stdout:
        pytest.skip("the browser prints nothing here, e.g. without a sandbox or shared memory")
    return done.stdout


@pytest.mark.long
def test_replays_tabs_and_theme_react_in_a_browser(tmp_path: Path, html: str) -> None:
    dom = in_browser(tmp_path, html.replace("</body>", ACTIONS + "</body>"), "#replay=0&frame=3")
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom)
    assert found, dom[-2000:]
    seen = dict(item.split(": ", 1) for item in json.loads(found[1]))
    steps = {name: int(m[1]) for name, v in seen.items() if (m := re.match(r"Step (\d+) of 24", v))}
    assert steps.pop("played") in range(2, 10)
    moves = {"start": 3, "forward": 4, "back": 3, "arrows": 5, "end": 24, "home": 0}
    assert steps == moves | {"slider": 9, "other": 0}
    assert "Prediction" in seen["slider"]
    assert "infers no subgoals" in seen["other"]
    assert "The episode is over" in seen["end"]
    wanted = {"ghosts": "1", "theme": "dark", "panels": "1", "second": "true", "playing": "Pause"}
    assert {name: seen[name] for name in wanted} == wanted
    assert int(seen["hidden"]) > 0


@pytest.mark.long
def test_the_page_does_not_scroll_sideways_on_a_phone(tmp_path: Path, html: str) -> None:
    """Headless windows have a least width, so the page is put into a frame of a phone's."""
    outer = """<!doctype html><iframe id="f" src="inner.html" style="width:390px;height:900px">
    </iframe><pre id="out"></pre><script>
    const show = (event) => { document.getElementById("out").textContent = event.data; };
    addEventListener("message", show);
    </script>"""
    measure = """<script>addEventListener("load", () => parent.postMessage(
      document.documentElement.scrollWidth + " " + innerWidth, "*"));</script></body>"""
    (tmp_path / "inner.html").write_text(html.replace("</body>", measure), encoding="utf-8")
    dom = in_browser(tmp_path, outer)
    found = re.search(r'<pre id="out">(\d+) (\d+)</pre>', dom)
    assert found, dom
    assert int(found[2]) == 390
    assert int(found[1]) <= 390
