"""Generated command lines: every subcommand, every key, values that nobody means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, get_args

from omg.config.arguments import Arguments
from omg.config.loader import available, load
from omg.config.schema import Config

from . import values
from .cases import Case, Started
from .children import Outcome, Task
from .judging import Judgement, files_of, judge
from .world import SMALL, TASK, World

Words: TypeAlias = list[str]
KEYS = sorted(Config.model_fields.keys() - {"debug"})  # which asks for tracebacks
DEFAULTS = load(Arguments()).config
PARTS = (
    *("", "x", "rnn", "mlp", "idv_rnn", "basic_mac", "multi_module_mac", "qmix", "vdn", "ac", "cv"),
    *("qtran_base", "coma", "episode", "batch", "parallel", "q_learner", "ppo_learner", "none_am"),
    *("coma_learner", "qtran_learner", "am_learner", "omg_learner", "multinomial", "soft_policies"),
    *("epsilon_greedy", "base_am", "liam_am", "omg_am", "oracle_am", "control_am", "pool", "iql"),
)
SAVED = re.compile(r"(^|=)(results|pool|crossplay|study|trap)")
ENV_ARGS = (
    *("key", "max_episode_steps", "sight", "max_food_level", "field_size", "players", "seed"),
    *("n_agents", "normalize_reward", "penalty", "grid", "time_limit", "nothing", "__class__"),
)
POOL = "--opponent_pool=pool"
ANEW = 100  # every so many-th is a new interpreter
ENVS = (
    *("foraging", "predator_prey", "spread", "two_step", "matrix_game", "pettingzoo", "gymnasium"),
    *("sc2", "lbforaging:Foraging-5x5-2p-1f-v3", "Foraging-5x5-2p-1f-v3", "nothing", "trap:Nope"),
)


def _key(rng: Random) -> str:
    """A key, sometimes with a dot in it, sometimes one that does not exist."""
    key = rng.choice(KEYS)
    kind = rng.random()
    if kind < 0.15:
        return f"env_args.{rng.choice(ENV_ARGS)}"
    if kind < 0.2:
        return f"{key}.{rng.choice(['x', '', 'a.b', 'x' * 300])}"
    if kind < 0.27:
        return rng.choice(
            [key[:-1], f"{key}_", key.upper(), "no_such_key", "", ".", "x" * 3000, "ü"]
        )
    return key


def _possible(rng: Random) -> str:
    """A key with a value of its own type, often at the edge of what is allowed."""
    key = rng.choice(KEYS)
    now = getattr(DEFAULTS, key)
    choices: tuple[Any, ...] = get_args(Config.model_fields[key].annotation)
    if isinstance(now, bool):
        choices = (not now, now)
    elif isinstance(now, int):
        choices = (0, 1, 2, 3, 5, 17, 1000) if rng.random() < 0.8 else (100_000, 10**9, 2**62)
    elif isinstance(now, float):
        choices = (0.0, 1.0, 1e-12, 1e12, 0.5, 1e-300, 3e38)
    elif isinstance(now, str) and not any(isinstance(choice, str) for choice in choices):
        choices = PARTS
    elif not choices or not isinstance(now, str):
        choices = (now, {}, [1], [3, 3], None)
    return f"--{key}={rng.choice(choices)}"


def _updates(rng: Random, most: int) -> Words:
    if rng.random() < 0.5:
        return [_possible(rng) for _ in range(rng.randint(1, 2))]
    words = []
    for _ in range(rng.randint(1, most)):
        key = _key(rng)
        shown = key.replace("_", "-") if rng.random() < 0.1 else key
        words.append(f"--{shown}" if rng.random() < 0.08 else f"--{shown}={values.odd(rng)}")
    return words


def _train(rng: Random) -> Words:
    """Training with one to three odd keys; what would start is small."""
    alg = rng.choice(available("algs"))
    words = [f"--config={alg}", *SMALL, "--local_results_path=new"]
    if rng.random() < 0.3:
        words.append(POOL)
    words += _updates(rng, 3)
    if rng.random() < 0.15:
        words.append(f"--env-config={rng.choice([*available('envs'), values.odd(rng)])}")
        words.remove("--env-config=foraging")
    task = list(TASK) if rng.random() < 0.8 else ["with", *TASK[2:]]
    if rng.random() < 0.2:
        task.append(rng.choice(values.NAMES))
    if rng.random() < 0.2:
        task.append(f"{_key(rng)}={values.odd(rng)}")
    return ["train", *words, *task]


def _possible_train(rng: Random) -> Words:
    """Training that mostly starts, with one or two keys at the edge of what is allowed."""
    alg = rng.choice(["iql", "vdn", "qmix", "qtran", "coma", "ippo", "mappo", "iql_idv"])
    others = []
    if rng.random() < 0.5:
        alg, others = rng.choice(["iql_am", "iql_liam", "d3qn", "ppo", "d3qn_oracle"]), [POOL]
    if rng.random() < 0.1:
        alg, others = "iql_omg", [POOL, "--init_param_path=results/prior"]
    keys = [_possible(rng) for _ in range(rng.randint(1, 2))]
    return ["train", f"--config={alg}", *SMALL, "--local_results_path=new", *others, *keys, *TASK]


def _loose_train(rng: Random) -> Words:
    """Words in any order, some missing, some twice."""
    parts = [
        f"--config={rng.choice([*available('algs')[:5], values.odd(rng)])}",
        f"--env-config={rng.choice(['foraging', 'foraging', values.odd(rng)])}",
        *SMALL[1:],
        *("--local_results_path=new", "with", *TASK[1:]),
    ]
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(parts))
        if rng.random() < 0.5:
            parts.pop(at)
        else:
            parts.insert(at, parts[-1])
    parts.insert(rng.randrange(len(parts) + 1), values.odd(rng))
    if rng.random() < 0.3:
        rng.shuffle(parts)
    return ["train", *parts]


def _team(rng: Random) -> Words:
    words = [f"--config={rng.choice(values.TEAMS)}", "--multi_algs", *SMALL, *_updates(rng, 1)]
    if rng.random() < 0.6:
        words.append(f"--init_param_path={rng.choice(['results', 'results/prior', 'nowhere'])}")
    return ["train", *words, "--local_results_path=new", *TASK]


def _loading(rng: Random) -> Words:
    """Runs that read what others saved, with odd names and odd changes."""
    run = rng.choice(["results/iql", "results/agent", "results/ppo", "results", values.odd(rng)])
    option = rng.choice(["resume", "checkpoint_path", "init_param_path", "opponent_pool"])
    words = [f"--{option}={run}", *(_updates(rng, 1) if rng.random() < 0.7 else [])]
    if option == "resume" and rng.random() < 0.7:
        return ["train", *words, "--t_max=36"]
    alg = rng.choice(["iql", "iql_am", "iql_omg", "ppo"])
    return ["train", f"--config={alg}", *SMALL, "--local_results_path=new", *words, *TASK]


def _config(rng: Random) -> Words:
    if rng.random() < 0.05:
        return ["config", rng.choice(["list", "", "nothing"]), *_updates(rng, 1)]
    words = [*_train(rng)[1:], *_updates(rng, 4)]
    return ["config", "show", *words]


def _options(rng: Random, **known: tuple[str, ...]) -> Words:
    """Some options of a command, each with a fitting or an odd value."""
    words = []
    for name, fitting in known.items():
        if rng.random() < 0.45:
            value = rng.choice(fitting) if fitting and rng.random() < 0.5 else values.odd(rng)
            words += [f"--{name.replace('_', '-')}={value}"]
    if rng.random() < 0.1:
        words.append(
            rng.choice(["--nothing", "--debug=maybe", "-x", "--trust=", "--help", "--trust=x"])
        )
    return words


def _run(rng: Random) -> str:
    agents = ("results/agent", "results/omg", "results/ppo", "results/agent-2")
    return rng.choice(agents) if rng.random() < 0.75 else values.odd(rng)


def _evaluate(rng: Random) -> Words:
    known = {
        "pool": ("pool", "study/pool"),
        "split": ("train", "heldout", "both"),
        "lineup": ("auto", "both", "mixed", "homologue"),
        "which": ("last", "best", "12", "24"),
        "seed": ("1",),
        "finetune_episodes": ("1", "2"),
        "out": ("new",),
        "replays": ("0", "1"),
    }
    words = _options(rng, **known)
    flags = [flag for flag in ("--permute", "--sample") if rng.random() < 0.2]
    episodes = f"--episodes={'2' if rng.random() < 0.8 else values.odd(rng)}"
    if rng.random() < 0.5:
        return ["evaluate", _run(rng), episodes, *words, *flags]
    runs = [_run(rng) for _ in range(rng.randint(0, 3))]
    more = _options(rng, metric=("own_return", "hit_ratio"), baseline=("Naive", "iql_omg"))
    return ["crossplay", *runs, episodes, *words, *more, *flags]


def _report(rng: Random) -> Words:
    sources = [
        rng.choice(
            ["results/agent", "results/iql", "results", "crossplay", "pool", values.odd(rng)]
        )
        for _ in range(rng.randint(0, 3))
    ]
    if rng.random() < 0.5:
        metrics = ("test_return_mean", "test_own_return_mean", "loss")
        outs = ("new.png", "new.svg", "new.txt", "results", "nowhere/x.png")
        return ["plot", *sources, *_options(rng, metric=metrics, out=outs)]
    known = {
        "title": ("Title",),
        "metric": ("test_return_mean",),
        "out": ("new.html", "new/x.html"),
    }
    return ["report", *sources, *_options(rng, **known)]


def _pool(rng: Random) -> Words:
    pool = rng.choice(["pool", "pool", "new", values.odd(rng)])
    kind = rng.choice(["add", "add", "list", "show", "split", "nothing"])
    if kind == "add":
        runs = [
            rng.choice(["results/iql", "results/qmix", _run(rng)]) for _ in range(rng.randint(0, 2))
        ]
        steps = ("final", "best", "early,middle", "12", "newest")
        sides, scripts = ("train", "heldout"), ("random", "nearest_food", "chase")
        more = _options(rng, steps=steps, script=scripts, env=("foraging",), noise=("0.2",))
        return ["pool", "add", pool, *runs, *more, *_options(rng, split=sides, name=("other",))]
    if kind == "show":
        return ["pool", kind, pool, rng.choice(["iql-24", "script-random-0", values.odd(rng)])]
    known = {"heldout": ("0.5", "iql", "iql-24"), "by": ("run", "member"), "seed": ("1",)}
    return [
        "pool",
        kind,
        pool,
        *_options(rng, **(known if kind == "split" else {"split": ("train",)})),
    ]


def _envs(rng: Random) -> Words:
    kind = rng.choice(["info", "info", "check", "play", "play", "list"])
    env = rng.choice(ENVS) if rng.random() < 0.8 else values.odd(rng)
    args = [
        "with",
        *(f"{rng.choice(ENV_ARGS)}={values.odd(rng)}" for _ in range(rng.randint(0, 2))),
    ]
    args = args[len(args) == 1 :]
    if kind == "list":
        return ["envs", "list", *_options(rng, json=())]
    if kind == "play":
        policies = ("random", "nearest_food", "chase", "results/iql", "results/agent", "results")
        known = {"policy": policies, "episodes": ("2",), "seed": ("3",), "out": ("new",)}
        text = ["--text"] if rng.random() < 0.4 else []
        return ["envs", kind, env, *_options(rng, **known), *text, *args]
    return ["envs", kind, env, *args, *(["--json"] if rng.random() < 0.1 else [])]


def _pipeline(rng: Random) -> Words:
    files = ("tiny", "demo", "foraging", "pipeline.yaml", "half_pipeline.yaml", "circular.yaml")
    known = {
        "pipeline": files,
        "env_config": ("foraging", "spread"),
        "jobs": ("1",),
        "out": ("new",),
    }
    words = [*_options(rng, **known), *(_updates(rng, 2) if rng.random() < 0.5 else [])]
    return ["pipeline", *words, *(["--dry-run"] if rng.random() < 0.9 else [])]


def _other(rng: Random) -> Words:
    command = rng.choice(
        ["algorithms", "doctor", "demo", "", "--version", values.odd(rng), "trian"]
    )
    extra = ["--results=/dev/null/x"] if command == "demo" else []
    return [command, *extra, *_options(rng, json=(), jobs=("-1",), nothing=())]


KINDS: tuple[tuple[int, Callable[[Random], Words]], ...] = (
    *(
        (20, _train),
        (25, _possible_train),
        (8, _loose_train),
        (5, _team),
        (8, _loading),
        (16, _config),
        (9, _evaluate),
    ),
    *((6, _report), (8, _pool), (8, _envs), (4, _pipeline), (1, _other)),
)


@dataclass(frozen=True)
class CommandCase(Case):
    """A generated command line in a copy of the world."""

    def words(self) -> Words:
        """What is typed."""
        rng = self.random()
        weights, makers = zip(*KINDS, strict=True)
        words = rng.choices(makers, weights)[0](rng)
        return [word.replace("\0", "") for word in words]

    def start(self, world: World, place: Path) -> Started:
        words = self.words()
        folder = place / "here"
        if any(SAVED.search(word) for word in words):  # else nothing of it is read
            world.copy(place)
        else:
            folder.mkdir()
        values.write_files(folder, [word.rpartition("=")[2] for word in words])
        anew = self.number % ANEW == 0
        task = Task(tuple(words), folder, world.environ(folder), patience=5.0, anew=anew)
        before, around = files_of(folder), {path.name for path in place.iterdir()}

        def verdict(outcome: Outcome) -> Judgement:
            found = judge(outcome, before, files_of(folder))
            faults = list(found.faults)
            names = {path.name for path in place.iterdir() if path.name[0] != "."}
            names.discard("sprung")  # a command line may name the trap's code
            if names - around:
                faults.append(f"wrote outside of its folder: {sorted(names - around)[0]}")
            if (folder / "sprung").exists():
                faults.append("a file's text was executed")
            return Judgement("wrong" if faults else found.verdict, tuple(faults))

        return Started(task, verdict)
