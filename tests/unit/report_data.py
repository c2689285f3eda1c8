"""A pipeline's folder as training would leave it, with made-up but plausible numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from omg.config.loader import load_command_line

METHODS = ("D3QN", "Control", "Naive OM", "OMG paper", "OMG tuned")
LEVELS = {"D3QN": 3.6, "Control": 3.75, "Naive OM": 3.95, "OMG paper": 3.62, "OMG tuned": 4.1}
MODELS = {
    "D3QN": "none_am",
    "Control": "control_am",
    "Naive OM": "base_am",
    "OMG paper": "omg_am",
    "OMG tuned": "omg_am",
}
KEY = "Foraging-8x8-2p-3f-v3"


def slug(method: str) -> str:
    return method.lower().replace(" ", "_")


@dataclass(frozen=True)
class Shape:
    """How large the made-up pipeline is."""

    methods: tuple[str, ...] = METHODS
    seeds: int = 3
    seen: int = 8
    unseen: int = 6
    tests: int = 41
    t_max: int = 500_000


def write_pipeline(out: Path, shape: Shape = Shape()) -> Path:  # noqa: B008 - frozen
    """Write runs, pool, cross-play and replays under `out`."""
    write_agents(out / "agents", shape)
    write_prior(out / "priors" / "prior")
    for opponent in opponents(shape):
        if opponent["seed"] is not None:
            write_opponent(out / "opponents", opponent)
    write_json(out / "pool" / "pool.json", {"format": 1, "members": pool_members(shape)})
    write_json(out / "crossplay.json", crossplay(shape))
    for name, method, seed in (("omg_tuned-s1", "OMG tuned", 3), ("d3qn-s1", "D3QN", 4)):
        if method in shape.methods:
            content = replay(name, method, seed=seed, subgoals=method.startswith("OMG"))
            write_json(out / "replays" / f"{name}.json", content)
    return out


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_run(path: Path, config: dict[str, Any], records: Sequence[dict[str, Any]]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (path / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return path


def config_of(method: str, seed: int, **more: Any) -> dict[str, Any]:
    """A complete configuration, as a run writes it."""
    alg = "d3qn_omg" if method.startswith("OMG") else "iql_am"
    words = [f"--config={alg}", "--env-config=foraging", f"--seed={seed}"]
    config = load_command_line(words).config.as_dict()
    config |= {"label": method, "am_model": MODELS.get(method, "none_am"), "t_max": 500_000}
    if method.startswith("OMG"):
        config["init_param_path"] = "priors/prior"
    if method == "OMG tuned":
        config |= {"subgoal_dim": 16, "am_kl_weight": 0.1, "subgoal_feature": "decoded"}
    return json.loads(json.dumps(config)) | more


def write_agents(folder: Path, shape: Shape) -> None:
    for index, method in enumerate(shape.methods):
        for seed in range(1, shape.seeds + 1):
            random = np.random.default_rng([index, seed])
            records = agent_records(method, shape, random)
            write_run(folder / f"{slug(method)}-s{seed}", config_of(method, seed), records)


def agent_records(method: str, shape: Shape, random: np.random.Generator) -> list[dict[str, Any]]:
    level = LEVELS.get(method, 3.5) + random.normal(0, 0.08)
    records = []
    for i in range(shape.tests):
        step = round(shape.t_max * i / max(shape.tests - 1, 1))
        share = 1 - math.exp(-5 * step / shape.t_max)
        own = level * (0.15 + 0.85 * share) + random.normal(0, 0.06)
        base = {"t_env": step, "wall_s": round(step / 400, 3)}
        test = {
            "test_return_mean": 1.9 * own,
            "test_own_return_mean": own,
            "test_own_discounted_return_mean": 0.72 * own,
            "test_ep_length_mean": 48 - 7 * own + random.normal(0, 0.5),
            "test_truncated_mean": max(0.0, 0.6 - 0.6 * share),
            "test_agent_0_return_mean": own,
            "test_agent_1_return_mean": 0.9 * own,
            "test_food_collected_mean": min(1.0, own / 4.3),
        }
        losses = {
            "loss": 0.6 * math.exp(-3 * share) + abs(random.normal(0, 0.01)),
            "td_error_abs": 0.5 * math.exp(-2 * share) + abs(random.normal(0, 0.01)),
            "q_taken_mean": 0.8 * own,
            "grad_norm": 0.4,
        }
        if method.startswith("OMG"):
            test["test_hit_ratio_mean"] = 0.03 + 0.1 * share + random.normal(0, 0.003)
            losses |= subgoal_losses(method, share, random)
        elif method == "Naive OM":
            losses |= {"am_loss": 1.7 - 1.1 * share, "am_accuracy": 0.2 + 0.5 * share}
        records += [base | test, base | losses]
    return records


def subgoal_losses(method: str, share: float, random: np.random.Generator) -> dict[str, float]:
    weights = np.array([0.2 + 0.25 * share, 0.2, 0.2, 0.2 - 0.05 * share, 0.2 - 0.12 * share])
    weights = np.abs(weights + random.normal(0, 0.01, 5))
    shares = weights / weights.sum()
    recon = 0.3 * math.exp(-3 * share) + abs(random.normal(0, 0.004))
    kl = 4 * (1 - share) + (0.02 if method == "OMG paper" else 1.6)
    active = 0.9 * (1 - share) + (0.03 if method == "OMG paper" else 0.7 * share)
    values = {
        "am_recon": recon,
        "am_kl": kl,
        "am_loss": recon + 0.1 * kl,
        "am_active_dims": active,
        "am_posterior_std": 0.95 if method == "OMG paper" else 1 - 0.6 * share,
        "subgoal_epsilon": 0.5 * (1 - share),
    }
    return values | {f"subgoal_k{k + 1}": float(share) for k, share in enumerate(shares)}


def write_prior(path: Path) -> None:
    config = config_of("OMG tuned", 1, learner="am_learner", label="prior")
    records = []
    for i in range(30):
        share = 1 - math.exp(-i / 6)
        values = {"prior_recon": 0.4 * (1 - share), "prior_kl": 9 * share}
        values["prior_accuracy"] = 0.99 * share
        records.append({"t_env": 5000 * i, "wall_s": float(i), **values})
    write_run(path, config, records)


def opponents(shape: Shape) -> list[dict[str, Any]]:
    """Checkpoints of three algorithms and, last on either side, a script."""
    found = []
    for split, count in (("train", shape.seen), ("heldout", shape.unseen)):
        for i in range(count):
            script = i == count - 1
            algorithm = "script" if script else ("iql", "vdn", "qmix")[i % 3]
            seed = None if script else i // 3 + (1 if split == "train" else 11)
            run = f"nearest_food-{split}" if script else f"{algorithm}-s{seed}"
            skill = "noise 0.1" if script else "final"
            member = run if script else f"{run}-final"
            found.append(
                {"id": member, "run": run, "algorithm": algorithm, "seed": seed}
                | {"skill": skill, "split": split}
            )
    return found


def pool_members(shape: Shape) -> list[dict[str, Any]]:
    return [member | {"kind": "checkpoint", "env": "foraging"} for member in opponents(shape)]


def write_opponent(folder: Path, opponent: dict[str, Any]) -> None:
    config = config_of("D3QN", opponent["seed"], name=opponent["algorithm"], label="")
    records = [{"t_env": 1000 * i, "wall_s": 1.0, "test_return_mean": i / 10} for i in range(9)]
    write_run(folder / opponent["run"], config, records)


def crossplay(shape: Shape) -> dict[str, Any]:
    """A table whose summary and differences are computed from its own cells."""
    random = np.random.default_rng(7)
    agents = [
        {
            "id": f"{slug(method)}-s{seed}",
            "method": method,
            "seed": seed,
            "run": f"agents/{slug(method)}-s{seed}",
            "config": "d3qn_omg",
            "am_model": MODELS.get(method, "none_am"),
            "env_steps": shape.t_max,
        }
        for method in shape.methods
        for seed in range(1, shape.seeds + 1)
    ]
    cells = []
    for agent in agents:
        for opponent in [*opponents(shape), *_mixed()]:
            level = LEVELS.get(str(agent["method"]), 3.5) - 0.25 * (opponent["split"] == "heldout")
            own = level + random.normal(0, 0.25)
            metrics = {
                "own_return": own,
                "discounted_return": 0.72 * own,
                "return": 1.9 * own,
                "ep_length": 48 - 7 * own,
                "food_collected": min(1.0, own / 4.3),
            }
            if str(agent["method"]).startswith("OMG"):
                metrics["hit_ratio"] = 0.12 + random.normal(0, 0.02)
                metrics["permuted_own_return"] = own - 0.5 + random.normal(0, 0.1)
            lineup = "mixed" if opponent["id"] == "mixed" else "homologue"
            place = {"agent": agent["id"], "opponent": opponent["id"], "lineup": lineup}
            cells.append(place | {"split": opponent["split"], "episodes": 64, "metrics": metrics})
    return {
        "format": 1,
        "env": "foraging",
        "env_args": {"key": KEY},
        "episodes": 64,
        "finetune_episodes": 0,
        "seed": 0,
        "agents": agents,
        "opponents": opponents(shape),
        "cells": cells,
        "paired": [{"baseline": shape.methods[0]}],
    }


def _mixed() -> list[dict[str, Any]]:
    return [{"id": "mixed", "split": "train"}, {"id": "mixed", "split": "heldout"}]


def replay(
    agent: str, method: str, *, seed: int, subgoals: bool, steps: int = 24
) -> dict[str, Any]:
    """Two walkers on an 8 x 8 field that go from food to food."""
    random = np.random.default_rng(seed)
    players = [[1, 1, 2], [6, 6, 1]]
    foods = [[2, 5, 1], [5, 2, 2], [6, 1, 3]]
    score = [0.0, 0.0]
    frames, actions, guesses = [], [], []
    for _ in range(steps + 1):
        frames.append(
            {"players": [list(p) for p in players], "foods": [list(f) for f in foods]}
            | {"score": list(score)}
        )
        for seat, player in enumerate(players):
            target = foods[seat % len(foods)][:2] if foods else [4, 4]
            near = abs(target[0] - player[0]) + abs(target[1] - player[1]) == 1
            if near and foods:
                score[seat] += foods.pop(seat % len(foods))[2] / 6
            else:
                axis = 0 if target[0] != player[0] else 1
                player[axis] += int(np.sign(target[axis] - player[axis]))
        actions.append([int(random.integers(6)), int(random.integers(6))])
    path = [frame["players"][1] for frame in frames]
    for t in range(steps):
        ahead = path[min(t + 3, steps)]
        noise = random.normal(0, 0.35, 2) if t % 5 else random.normal(0, 2, 2)
        guess = np.clip(np.array(ahead[:2]) + noise, 0, 7)
        guesses.append([[float(guess[0]), float(guess[1])]])
    return {
        "format": 1,
        "env": "foraging",
        "field_size": [8, 8],
        "agent": agent,
        "method": method,
        "opponent": "iql-s11-final",
        "seat": 0,
        "players": 2,
        "frames": frames,
        "actions": actions[:steps],
        "subgoals": guesses if subgoals else None,
    }
