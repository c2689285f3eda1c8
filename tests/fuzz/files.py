"""Damaged files: every kind of file, damaged in every way, read by every command that reads it."""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

from . import damage
from .cases import Case, Started
from .children import NOBODY, Outcome, Task
from .damage import ANY, NEVER_ACCEPTED, TEXT, WEIGHTS, Damage
from .judging import Judgement, files_of, judge
from .world import POOL, SMALL, TASK, World, train

READERS: dict[str, tuple[str, ...]] = {
    "resume": ("train", "--resume=results/iql", "--t_max=36"),
    "resume agent": ("train", "--resume=results/agent", "--t_max=36"),
    "resume ppo": ("train", "--resume=results/ppo", "--t_max=36"),
    "resume newest": (
        *("train", "--config=iql", *SMALL, "--local_results_path=results", "--resume", *TASK),
    ),
    "continue": train("iql", "new", "--checkpoint_path=results/iql"),
    "test": train("iql", "new", "--checkpoint_path=results/iql", "--evaluate"),
    "evaluate": ("evaluate", "results/agent", "--episodes=2", "--split=both", "--out=new"),
    "evaluate best": ("evaluate", "results/agent", "--episodes=2", "--which=best", "--out=new"),
    "finetune": ("evaluate", "results/agent", "--episodes=2", "--finetune-episodes=2", "--out=new"),
    "crossplay": ("crossplay", "results/agent", "results/omg", "--episodes=2", "--out=new"),
    "report": ("report", "results/iql", "results/agent", "--out=new.html"),
    "report of tables": ("report", "crossplay", "results/agent", "--out=new.html"),
    "report of study": ("report", "study", "--out=new.html"),
    "plot": ("plot", "results/iql", "results/iql-2", "--out=new.png"),
    "list": ("pool", "list", "pool"),
    "show": ("pool", "show", "pool", "iql-24"),
    "split": ("pool", "split", "pool", "--heldout=0.5"),
    "add": ("pool", "add", "pool", "results/qmix"),
    "add iql": ("pool", "add", "new", "results/iql", "--steps=final"),
    "play": ("envs", "play", "--policy=results/iql", "--episodes=1", "--text"),
    "play agent": ("envs", "play", "--policy=results/agent", "--episodes=1", "--out=new"),
    "with pool": train("iql_am", "new", *POOL),
    "with prior": train("iql_omg", "new", *POOL, "--init_param_path=results/prior"),
    "team": (*train("1iql1iql_am", "new", "--multi_algs", "--init_param_path=team"),),
    "pipeline": ("pipeline", "--pipeline=tiny", "--out=study", "--jobs=1"),
}
NEWEST = "24"
# File, how it may be damaged, who reads it.
TARGETS: tuple[tuple[str, tuple[Damage, ...], tuple[str, ...]], ...] = (
    (
        "results/iql/config.yaml",
        TEXT,
        ("resume", "resume newest", "report", "plot", "play", "add iql"),
    ),
    (
        "results/agent/config.yaml",
        TEXT,
        ("evaluate", "crossplay", "report", "play agent", "resume agent"),
    ),
    ("results/iql/run.json", TEXT, ("resume", "report", "test")),
    (f"results/iql/models/{NEWEST}/meta.json", TEXT, ("test", "continue", "add iql", "play")),
    (
        "results/agent/models/last/meta.json",
        TEXT,
        ("evaluate", "crossplay", "play agent", "finetune"),
    ),
    ("results/iql/models/24/sha256.json", TEXT, ("test", "add iql", "play")),
    ("results/agent/models/last/sha256.json", TEXT, ("evaluate", "play agent")),
    ("results/iql/models/24/agent.th", WEIGHTS, ("test", "continue", "add iql", "play")),
    ("results/iql/models/24/opt.th", WEIGHTS, ("continue",)),
    ("results/agent/models/last/iql_am/agent.th", WEIGHTS, ("evaluate", "crossplay", "play agent")),
    ("results/agent/models/last/iql_am/base_am.th", WEIGHTS, ("evaluate",)),
    ("results/agent/models/last/opt.th", WEIGHTS, ("finetune",)),
    ("results/agent/models/best/iql_am/agent.th", WEIGHTS, ("evaluate best",)),
    ("results/iql/resume/24/state.pt", WEIGHTS, ("resume", "resume", "resume newest")),
    ("results/iql/resume/24/sha256.json", TEXT, ("resume",)),
    ("results/agent/resume/48/state.pt", WEIGHTS, ("resume agent",)),
    ("results/ppo/resume/48/state.pt", WEIGHTS, ("resume ppo",)),
    ("results/iql/metrics.jsonl", TEXT, ("resume", "report", "plot", "add iql")),
    ("results/agent/metrics.jsonl", TEXT, ("report", "evaluate")),
    (
        "pool/pool.json",
        TEXT,
        ("list", "show", "split", "add", "evaluate", "crossplay", "with pool"),
    ),
    ("pool/members/iql-24/agent.th", WEIGHTS, ("show", "evaluate", "with pool", "crossplay")),
    ("results/prior/models/*/iql_omg/vae.th", WEIGHTS, ("with prior",)),
    ("results/prior/models/last/iql_omg/vae.th", WEIGHTS, ("with prior",)),
    ("results/prior/models/*/meta.json", TEXT, ("with prior",)),
    ("crossplay/crossplay.json", TEXT, ("report of tables",)),
    ("crossplay/replays/*.json", TEXT, ("report of tables",)),
    ("results/agent/evaluation/crossplay.json", TEXT, ("report of tables", "report")),
    ("study/pipeline.json", TEXT, ("pipeline", "report of study")),
    ("study/crossplay.json", TEXT, ("report of study", "pipeline")),
    ("study/agents/*/config.yaml", TEXT, ("report of study", "pipeline")),
    ("study/agents/*/metrics.jsonl", TEXT, ("report of study", "pipeline")),
    ("study/pool/pool.json", TEXT, ("pipeline", "report of study")),
    ("cache/omg-marl/*.so", (), ("test", "resume")),
    ("cache/omg-marl/*.sha256", (), ("test",)),
)


@functools.cache
def combinations(seed: int, study: bool) -> tuple[tuple[str, Damage, str], ...]:
    """Every file, damage and reader, in an order drawn from the seed. Short texts come round more
    often than others because there are more ways to be wrong in them."""
    found = [
        (target, how, reader)
        for target, special, readers in TARGETS
        if study or "study" not in target
        for how, reader in itertools.product((*ANY, *special), readers)
        if study or "study" not in reader
    ]
    Random(f"{seed}/files").shuffle(found)
    return tuple(found)


@dataclass(frozen=True)
class FileCase(Case):
    """One damaged file and one command that reads it."""

    study: bool = True

    def what(self) -> tuple[str, Damage, str]:
        """File, damage and reader."""
        every = combinations(self.seed, self.study)
        return every[self.number % len(every)]

    def start(self, world: World, place: Path) -> Started:
        target, how, reader = self.what()
        rng = self.random()
        folder = world.copy(place, study="study" in target or "study" in reader)
        environ = world.environ(folder)
        if target.startswith("cache"):
            world.copy_cache(folder / "cache")
            environ["OMG_CACHE"] = str(folder / "cache")
        path = rng.choice(sorted(folder.glob(target)) or [folder / "trap.py"])
        how(path, folder, rng)
        if how in (damage.other_content, damage.not_finite) and rng.random() < 0.6:
            damage.sum_again(path)
        as_nobody = how is damage.unreadable
        if as_nobody:
            _give(place)
        task = Task(
            READERS[reader],
            *(folder, environ),
            patience=90.0 if reader == "pipeline" else 40.0,
            watched=path,
            as_nobody=as_nobody,
        )
        before = files_of(folder)

        def verdict(outcome: Outcome) -> Judgement:
            found = judge(outcome, before, files_of(folder))
            faults = list(found.faults)
            if (place / "sprung").exists() or (folder / "sprung").exists():
                faults.append("code of a saved file was run")
            weights = path.suffix in (".th", ".pt") and how in NEVER_ACCEPTED
            silent = path.name not in outcome.out + outcome.err
            if weights and outcome.code == 0 and outcome.opened and silent:
                faults.append("damaged weights were accepted")
            return Judgement("wrong" if faults else found.verdict, tuple(faults))

        return Started(task, verdict)

    def told(self) -> str:
        """In words."""
        target, how, reader = self.what()
        return f"{target} {how.__name__.replace('_', ' ')}, then: {reader}"


def _give(place: Path) -> None:
    """Everything to a user who may not read all of it."""
    os.chmod(place.parent.parent, 0o755)
    for root, folders, names in os.walk(place):
        for name in (".", *folders, *names):
            os.lchown(os.path.join(root, name), NOBODY, NOBODY)
