"""What was trained: commands and configurations of the methods."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from omg.config.loader import CONFIG_DIR, available, leaves, load_command_line, read_yaml
from omg.evaluation.grouping import of_any_seed, settings
from omg.report.data import ReportData
from omg.report.html import Child, Html, el, join, note, swatch, table
from omg.report.runs import RunRecord
from omg.types import OmgError


def command(run: RunRecord) -> str:
    """A command that trains the same: the nearest presets and what differs from them, or, where
    the presets are not ours, the configuration's file."""
    wanted = settings(run.config)
    found = []
    for words in _presets(run.config):
        with contextlib.suppress(OmgError):  # the presets changed since
            preset = settings(load_command_line(words).config.as_dict())
            differing = {k: v for k, v in wanted.items() if preset.get(k, _MISSING) != v}
            more = [k for k in preset if "." in k and k not in wanted]  # no word takes them back
            if not more and all(k in preset or "." in k for k in differing):
                found.append((len(differing), words, differing))
    if not found:
        return f"omg train with {shlex.quote(f'{run.path.name}/config.yaml')}"
    _, words, differing = min(found, key=lambda one: one[0])
    label = [f"--label={run.config['label']}"] if run.config.get("label") else []
    plain = [f"--{k}={v}" for k, v in differing.items() if "." not in k]
    nested = [f"{k}={v}" for k, v in differing.items() if "." in k]
    with_words = ["with", *nested] if nested else []
    all_words = [*words, f"--seed={run.seed}", *label, *plain, *with_words]
    return "omg train " + " ".join(shlex.quote(word) for word in all_words)


_MISSING = object()


def _presets(config: Mapping[str, Any]) -> list[list[str]]:
    """The shipped presets of the run's algorithm on its environment."""
    if config.get("multi_algs") or config.get("name") not in available("algs"):
        return []
    return [
        [f"--config={config['name']}", f"--env-config={name}"]
        for name in available("envs")
        if read_yaml(CONFIG_DIR / "envs" / f"{name}.yaml", name).get("env") == config.get("env")
    ]


def command_table(data: ReportData) -> Html:
    """One command per method, with its seeds."""
    rows: list[Sequence[Child]] = []
    for method in data.methods:
        runs = data.runs_of(method)
        if runs:
            seeds = ", ".join(str(run.seed) for run in runs)
            words = el("code", command(runs[0]), class_="command")
            rows.append([join(swatch(data.slot(method)), " ", method), seeds, words])
    return table(["method", "seeds", "command"], rows, caption="Commands per method", wrap=[2])


def difference_table(data: ReportData) -> Html:
    """Keys in which the methods differ; with one method, what differs from the defaults."""
    methods = [method for method in data.methods if data.runs_of(method)]
    values = {method: values_of(data.runs_of(method)) for method in methods}
    keys = list(dict.fromkeys(key for found in values.values() for key in found))
    if len(methods) == 1:
        return _against_defaults(methods[0], values[methods[0]])
    differing = [key for key in keys if len({values[m].get(key, "–") for m in methods}) > 1]
    if not differing:
        return note("The methods' configurations do not differ.")
    rows = [[el("code", key), *(values[m].get(key, "–") for m in methods)] for key in differing]
    return table(["key", *methods], rows, caption="Settings in which the methods differ")


def shared_table(data: ReportData) -> Html | None:
    """What all methods share and the shipped defaults do not say."""
    methods = [values_of(data.runs_of(m)) for m in data.methods if data.runs_of(m)]
    if len(methods) < 2:
        return None
    same = {k: v for k, v in methods[0].items() if all(m.get(k) == v for m in methods)}
    return _against_defaults("all methods", same)


def _against_defaults(name: str, values: Mapping[str, str]) -> Html:
    default = dict(leaves(read_yaml(CONFIG_DIR / "default.yaml", "default.yaml")))
    rows = [
        [el("code", key), value, _shown(default[key]) if key in default else "–"]
        for key, value in values.items()
        if key not in default or _differs(value, default[key])
    ]
    if not rows:
        return note(f"Nothing in {name} differs from default.yaml.")
    caption = f"Settings of {name} that differ from default.yaml"
    return table(["key", name, "default.yaml"], rows, caption=caption)


def _differs(shown: str, default: Any) -> bool:
    try:
        return float(shown) != float(default)
    except (TypeError, ValueError):
        return shown != _shown(default)


def values_of(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Settings as text; one that varies between a method's seeds lists all its values."""
    every = [
        {k: of_any_seed(v, run.seed) if isinstance(v, str) else v for k, v in found.items()}
        for run in runs
        for found in (settings(run.config),)
    ]
    keys = dict.fromkeys(key for found in every for key in found)
    return {k: " or ".join(dict.fromkeys(_shown(found.get(k)) for found in every)) for k in keys}


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
