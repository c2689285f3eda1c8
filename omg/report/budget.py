"""What a method's agents cost: their steps, and those of the priors they began with."""

from __future__ import annotations

from pathlib import Path

from omg.report.data import ReportData
from omg.report.html import Html, el
from omg.report.runs import RunRecord


def own_steps(data: ReportData, method: str) -> int | None:
    """Steps of a method's agents, the most of any."""
    played = data.crossplay.agents if data.crossplay else ()
    known = [a.env_steps for a in played if a.method == method and a.env_steps is not None]
    known += [run.env_steps for run in data.runs_of(method)]
    return max(known, default=None)


def prior_steps(data: ReportData, method: str) -> int:
    """Steps of the prior that each of them began with; 0 without one."""
    played = data.crossplay.agents if data.crossplay else ()
    known = [a.prior_steps for a in played if a.method == method and a.prior_steps]
    known += [prior.env_steps for run in data.runs_of(method) if (prior := _prior(data, run))]
    return max(known, default=0)


def _prior(data: ReportData, run: RunRecord) -> RunRecord | None:
    """The prior that a run began with, among those of the study."""
    name = Path(str(run.config.get("init_param_path") or "")).name
    return next((prior for prior in data.priors if name and prior.path.name == name), None)


def steps_cell(data: ReportData, method: str) -> Html:
    """All steps of one agent of a method, its prior's included."""
    own, prior = own_steps(data, method), prior_steps(data, method)
    if own is None:
        return el("td", "–", class_="num none", data_label="Steps")
    parts = el("span", f"{own:,} + {prior:,} prior", class_="range") if prior else None
    return el("td", el("span", f"{own + prior:,}"), parts, class_="num", data_label="Steps")


def budget_words(data: ReportData) -> list[str]:
    """What a reader of the steps should know of priors."""
    begun = [(run, prior) for run in data.agents if (prior := _prior(data, run))]
    if not begun:
        return ["Steps: those of each agent's training, and of its prior's."] * bool(data.priors)
    shared = {prior.path for run, prior in begun if prior.seed != run.seed}
    if shared:
        return [
            "Steps include the prior's. Seeds of a method share one prior: how much another prior "
            "would change is not in the intervals."
        ]
    return ["Steps include the prior's; every seed has its own prior."]
