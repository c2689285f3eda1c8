"""Writes down what a study names (metric, baseline, methods) before anything of it runs."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from omg.evaluation.named import FILE, Named, read_named
from omg.experiment.provenance import source_commit, version_of
from omg.opponents.unseen import looks_in
from omg.storage.lines import append_line
from omg.studies.spec import PipelineSpec
from omg.studies.steps import FREE, PLACES, Plan


def meaning(spec: PipelineSpec, env_config: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The parts of a pipeline's file, and of what the command line adds to it, each with a hash.
    Comments, the order of keys and methods, and values that are the defaults mean nothing."""
    parts = spec.model_dump(mode="json", exclude_defaults=True)
    for method in parts["agents"].pop("methods"):
        parts[f"method {method['name']}"] = method
    metric, baseline = primary(spec)
    if crossplay := parts.get("crossplay"):
        parts["crossplay"] = {k: v for k, v in crossplay.items() if k not in ("metric", "baseline")}
    told = {key: value for key, value in given.items() if key not in FREE | PLACES}
    parts |= {"env_config": env_config, "metric": metric, "baseline": baseline}
    parts |= {"command line": told} if told else {}
    return {name: _hash(json.dumps(part, sort_keys=True))[:12] for name, part in parts.items()}


def primary(spec: PipelineSpec) -> tuple[str, str]:
    """The primary metric and the baseline of the cross-play; empty without one."""
    if spec.crossplay is None:
        return "", ""
    return spec.crossplay.metric, spec.crossplay.baseline or spec.agents.methods[0].name


def name_study(plan: Plan, *, begun: int) -> None:
    """Append a line to named.jsonl the first time, and when the file's meaning has changed since.
    `begun`: steps that were begun before."""
    spec = plan.spec
    if spec is None:
        return
    lines = read_named(plan.out)
    before = lines[-1].parts if lines else None
    if before == plan.parts:
        return
    names = dict.fromkeys([*(before or {}), *plan.parts])
    metric, baseline = primary(spec)
    line = Named(
        when=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        sha256=_hash(plan.text),
        omg=version_of("omg-marl") or "unknown",
        commit=source_commit(),
        metric=metric,
        baseline=baseline,
        methods={m.name: len(m.seeds or spec.agents.seeds) for m in spec.agents.methods},
        looks=len(looks_in(plan.out)),
        steps=begun,
        parts=plan.parts,
        changed=()
        if before is None
        else tuple(name for name in names if before.get(name) != plan.parts.get(name)),
    )
    text = json.dumps(asdict(line), ensure_ascii=False)
    append_line(plan.out / FILE, text, "Make it writable, or choose another --out.")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
