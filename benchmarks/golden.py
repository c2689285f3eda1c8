"""Golden runs: what every learner computes, to be compared before and after a change of the code.

    python -m benchmarks.golden record before.json      # with the old code
    python -m benchmarks.golden record after.json       # with the new code
    python -m benchmarks.golden compare before.json after.json

Each run is a command of its own, with fixed seeds and as small as it can be. Of each are kept: the
names of its files, its metrics (but for the wall time), a hash of every tensor it saved (networks,
optimisers, the whole resume state), and the command's exit code. Evaluations keep their cells.
Hashes are equal on the same machine only: kernels differ between CPUs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

SMALL = (
    *("env_args.key=Foraging-5x5-3p-2f-v3", "env_args.max_episode_steps=12", "t_max=360"),
    *("batch_size=3", "batch_size_run=4", "buffer_size=64", "test_interval=200"),
    *("test_nepisode=4", "save_model_interval=200", "resume_interval=200", "log_interval=100"),
    *("learner_log_interval=60", "runner_log_interval=60", "prior_min_accuracy=0"),
    *("use_sacred=False", "use_tensorboard=False", "target_update_interval=10", "oracle_steps=2"),
    *("subgoal_epsilon_anneal_time=400", "epsilon_anneal_time=300", "seed=3"),
)
TEAMS = (
    "coma",
    "ippo",
    "iql",
    "iql_beta",
    "iql_idv",
    "mappo",
    "qmix",
    "qmix_quick",
    "qtran",
    "vdn",
)
AGENTS = (
    *("d3qn", "d3qn_am", "d3qn_control", "d3qn_liam", "d3qn_oracle", "iql_am", "iql_liam"),
    *("d3qn_meliba", "d3qn_types", "ppo_meliba", "ppo_types"),
    *("ppo", "ppo_am", "ppo_control", "ppo_liam", "ppo_oracle"),
)
SUBGOALS = (
    "d3qn_omg",
    "d3qn_omg_event",
    "d3qn_omg_event_tuned",
    "d3qn_omg_supervised",
    "d3qn_omg_tuned",
    "iql_omg",
    "iql_omg_tuned",
    "ppo_omg",
    "ppo_omg_tuned",
)
# Further settings of the names above, each a run of its own: name, algorithm, settings.
VARIANTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("qmix-parallel", "qmix", ("runner=parallel", "n_workers=2")),
    ("qmix-episode", "qmix", ("runner=episode", "collect_ahead=1")),
    ("vdn-soft", "vdn", ("target_update_tau=0.1", "double_q=False", "obs_is_state=True")),
    ("qmix-torch", "qmix", ("use_kernels=False", "hypernet_layers=1")),
    ("iql-own", "iql", ("common_reward=False", "policy_model=mlp", "dueling=True")),
    ("coma-seq", "coma", ("critic_train_mode=seq", "action_selector=soft_policies")),
    ("mappo-parts", "mappo", ("ppo_minibatches=2", "value_clip=0.1", "policy_model=mlp")),
    ("qtran-joint", "qtran", ("qtran_arch=coma_critic", "policy_model=mlp")),
)
AGENT_VARIANTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("iql_am-history", "iql_am", ("am_history=True", "am_present=True", "collect_ahead=1")),
    ("iql_am-state", "iql_am", ("obs_is_state=True", "agent_shift_mode=random")),
    ("d3qn_liam-both", "d3qn_liam", ("am_feature=both", "lineup_mode=homologue")),
    ("ppo_am-parts", "ppo_am", ("ppo_minibatches=2", "policy_model=rnn", "critic=cv")),
    ("iql_idv-agent", "iql_am", ("policy_model=idv_rnn", "am_model=none_am", "obs_agent_id=False")),
    ("iql_am-stored", "iql_am", ("store_inference=True", "is_agent_shift=False", "agent_shift=1")),
)
SUBGOAL_VARIANTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("iql_omg-random", "iql_omg", ("subgoal_mode=random", "subgoal_value=max")),
    ("iql_omg-optimistic", "iql_omg", ("subgoal_mode=optimistic", "subgoal_feature=both")),
    ("iql_omg-mlp", "iql_omg", ("subgoal_inference=mlp", "subgoal_epsilon_start=0.0")),
    ("d3qn_omg-idv", "d3qn_omg", ("policy_model=idv_rnn", "collect_ahead=1")),
    ("ppo_omg-rnn", "ppo_omg", ("policy_model=rnn", "subgoal_mode=optimistic")),
)


class Recorder:
    """Runs commands in one folder and reads what they leave there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.found: dict[str, Any] = {}
        with_torch = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        self._environment = {**os.environ, **with_torch}

    def all_at_once(self, runs: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Independent commands, two at a time."""
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda run: self.train(*run), runs))

    def omg(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of the installed program."""
        return subprocess.run(
            [sys.executable, "-m", "omg", *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def train(self, name: str, words: Sequence[str]) -> None:
        """A run called `name`."""
        done = self.omg("train", *words, f"--run_name={name}")
        folder = self._folder / "results" / name
        self.found[name] = {
            "exit": done.returncode,
            "said": done.stderr[-2000:] if done.returncode else "",
            "files": sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()),
            "metrics": list(_metrics(folder / "metrics.jsonl")),
            "tensors": dict(_tensors(folder)),
        }
        print(f"{name}: exit {done.returncode}", file=sys.stderr)

    def cells(self, name: str, *words: str) -> None:
        """An evaluation whose numbers are kept."""
        out = self._folder / name
        done = self.omg(*words, f"--out={out}")
        path = out / "crossplay.json"
        content = json.loads(path.read_text()) if path.is_file() else {}
        for key in ("version", "created", "agents"):
            content.pop(key, None)
        self.found[name] = {
            "exit": done.returncode,
            "said": done.stderr[-2000:] if done.returncode else "",
            "files": sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()),
            "content": content,
        }
        print(f"{name}: exit {done.returncode}", file=sys.stderr)


def _metrics(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        for line in path.read_text().splitlines():
            record = json.loads(line)
            record.pop("wall_s", None)
            yield record


def _tensors(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted([*folder.rglob("*.th"), *folder.rglob("*.pt")]):
        content = torch.load(path, map_location="cpu", weights_only=True)
        for key, value in _leaves(content, str(path.relative_to(folder))):
            if not key.endswith(("counters.seconds", "metrics_position")):
                yield key, _hash(value)


def _leaves(content: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{prefix}.{key}")
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _leaves(value, f"{prefix}.{number}")
    else:
        yield prefix, content


def _hash(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().numpy().tobytes()
        shape = f"{value.dtype} {tuple(value.shape)}"
        return f"{shape} {hashlib.sha256(raw).hexdigest()[:16]}"
    return repr(value)


def record(out: Path) -> None:
    """Make all runs and write what they left."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        recorder = Recorder(folder)
        base = ("--env-config=foraging", "with", *SMALL)
        teams = [(name, (f"--config={name}", *base)) for name in TEAMS]
        teams += [(name, (f"--config={alg}", *base, *more)) for name, alg, more in VARIANTS]
        recorder.all_at_once(teams)
        _pool(recorder, folder)
        others = (*base, "opponent_pool=pool")
        agents = [(name, (f"--config={name}", *others)) for name in AGENTS]
        agents += [
            (name, (f"--config={alg}", *others, *more)) for name, alg, more in AGENT_VARIANTS
        ]
        priors = [
            (f"prior-{name}", (f"--config={name}", "--learner=am_learner", *others))
            for name in SUBGOALS
        ]
        recorder.all_at_once([*agents, *priors, *_roles(recorder)])
        omg = [
            (name, (f"--config={alg}", *others, f"init_param_path=results/prior-{alg}", *more))
            for name, alg, more in (*((n, n, ()) for n in SUBGOALS), *SUBGOAL_VARIANTS)
        ]
        recorder.all_at_once([*omg, *_teams_of_names(folder)])
        _evaluations(recorder)
        out.write_text(json.dumps(recorder.found, indent=1, sort_keys=True) + "\n")
    print(f"Wrote {out}: {len(recorder.found)} runs")


def _pool(recorder: Recorder, folder: Path) -> None:
    recorder.omg("pool", "add", "pool", "results/iql", "results/vdn", "results/iql_idv")
    recorder.omg("pool", "add", "pool", "results/ippo", "results/iql-own", "--steps=early,final")
    recorder.omg("pool", "add", "pool", "--script=nearest_food", "--noise=0.1")
    recorder.omg("pool", "add", "pool", "--script=random", "--split=heldout")
    recorder.omg("pool", "add", "pool", "results/qmix", "results/coma", "--split=heldout")
    members = json.loads((folder / "pool" / "pool.json").read_text())["members"]
    recorder.found["pool"] = [{k: v for k, v in m.items() if k != "sha256"} for m in members]


def _roles(recorder: Recorder) -> list[tuple[str, tuple[str, ...]]]:
    """Games whose seats have roles: everybody, one role, or one agent of a role learns."""
    for script in ("chase", "flee"):
        recorder.omg("pool", "add", "hunters", "--env=predator_prey", f"--script={script}")
    small = [word for word in SMALL if not word.startswith("env_args.")]
    small += ["env_args.max_cycles=12", "common_reward=False"]
    base = ("--env-config=predator_prey", "with", *small)
    beside = (*base, "opponent_pool=hunters", "learning_role=predator")
    return [
        ("roles-all", ("--config=iql", *base)),
        ("roles-team", ("--config=iql", *beside)),
        ("roles-mixed", ("--config=vdn", *beside, "common_reward=True")),
        ("roles-ppo", ("--config=ippo", *beside)),
        ("roles-agent", ("--config=ppo_am", *beside)),
    ]


def _teams_of_names(folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """A team string with the weights of whole runs."""
    named = folder / "named"
    named.mkdir()
    for name in ("iql", "vdn"):
        (named / name).symlink_to(folder / "results" / name)
    words = ("--config=1iql1vdn1iql_am", "--multi_algs", "--env-config=foraging", "with", *SMALL)
    return [("team-string", (*words, "init_param_path=named"))]


def _evaluations(recorder: Recorder) -> None:
    runs = [
        f"results/{name}" for name in ("d3qn", "d3qn_am", "d3qn_omg_tuned", "iql_omg", "ppo_omg")
    ]
    short = ("--episodes=8", "--pool=pool")
    recorder.cells("crossplay", "crossplay", *runs, *short, "--permute", "--replays=1")
    tuned = ("--finetune-episodes=12", "--sample")
    recorder.cells("finetuned", "crossplay", *runs, *short, *tuned)
    for run in ("d3qn_oracle", "iql_am-history", "iql_idv-agent"):
        recorder.cells(f"evaluate-{run}", "evaluate", f"results/{run}", *short)
    for run in ("qmix", "iql_omg", "team-string"):
        shown = recorder.omg("envs", "play", f"--policy=results/{run}", "--text", "--episodes=2")
        recorder.found[f"play-{run}"] = {"exit": shown.returncode, "said": shown.stdout}
    for run in ("qmix", "ppo_omg"):
        again = ("--evaluate", f"--checkpoint_path=results/{run}", "--save_replay")
        words = (f"--config={run}", *again, "--env-config=foraging", "with", *SMALL)
        others = ("opponent_pool=pool",) if run != "qmix" else ()
        recorder.train(f"tested-{run}", (*words, *others))
    resumed = ("--resume=results/iql_omg", "--t_max=480")
    done = recorder.omg("train", *resumed)
    recorder.found["resumed"] = {"exit": done.returncode, "said": done.stderr[-2000:]}
    folder = recorder._folder / "results" / "iql_omg"
    recorder.found["resumed"]["tensors"] = dict(_tensors(folder))


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Every place in which two records differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            if key not in before or key not in after:
                side = "only after" if key in after else "only before"
                yield f"{where}/{key}: {side}"
            else:
                yield from differences(before[key], after[key], f"{where}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif before != after:
        yield f"{where}: {str(before)[:120]} -> {str(after)[:120]}"


def compare(before: Path, after: Path) -> int:
    """Print what differs; the exit code."""
    sides = [json.loads(path.read_text()) for path in (before, after)]
    found = list(differences(*sides))
    for line in found:
        print(line)
    print(f"{len(found)} differences in {len(sides[0])} records")
    return 1 if found else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "compare":
        return compare(asked.before, asked.after)
    record(asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
