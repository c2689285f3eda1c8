"""From a sweep's settings to its runs; every configuration is checked before anything runs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.components.seeding import SeedTree
from omg.config.arguments import parse_arguments
from omg.config.loader import load, masked
from omg.config.schema import ALIASES, Config
from omg.experiment.checks import sanity_check
from omg.registry import nearest
from omg.storage.files import write_text, writing
from omg.studies.steps import merged, settings_of, to_words
from omg.studies.sweep.space import (
    Dimension,
    combinations,
    corners,
    draws,
    is_space,
    read_word,
    size_of,
)
from omg.studies.sweep.spec import SweepSpec, checked, read_file
from omg.types import OmgError, user_path

FILE = "sweep.json"
DRAWN = 10  # configurations, where nobody says how many
MOST = 10_000  # configurations; each is checked before anything starts
FREE = frozenset({"cpus", "gpus", "max_failures"})  # may differ in a continuation
# Keys that a sweep sets itself, and what to do instead of giving them.
RESERVED = {
    "seed": "Give --seeds=1:5",
    "run_name": "Every run has a name by its configuration and seed",
    "local_results_path": "Choose another --out",
    "resume": "Give --resume alone, not as a key",
    "evaluate": "A sweep trains",
    "save_replay": "Record replays of the best run later",
    "label": "The settings tell the runs apart",
}
# What takes effect in a run that goes on, without a change of any shape or of the game.
PERTURBABLE = frozenset(
    (
        *("lr", "critic_lr", "gamma", "td_lambda", "grad_norm_clip", "updates_per_episode"),
        *("target_update_interval", "target_update_tau", "epsilon_finish", "entropy_coef"),
        *("eps_clip", "value_clip", "ppo_epochs", "ppo_minibatches", "gae_lambda"),
        *("optim_alpha", "optim_eps", "am_lr", "moa_lr"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """A checked sweep. `configurations` are known before it starts, except with Optuna, which
    chooses them one by one."""

    spec: SweepSpec
    out: Path
    dimensions: tuple[Dimension, ...]
    configurations: tuple[Mapping[str, Any], ...]
    count: int
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.spec.seeds

    @property
    def runs(self) -> int:
        """How many runs there will be. A population has one per configuration."""
        return self.count * (1 if self.spec.scheduler == "pbt" else len(self.seeds))

    def place(self, index: int) -> tuple[int, int]:
        """The number of the configuration and the seed of run `index`."""
        if self.spec.scheduler == "pbt":
            return index, self.seeds[index % len(self.seeds)]
        number, which = divmod(index, len(self.seeds))
        return number, self.seeds[which]

    def run_name(self, number: int, seed: int) -> str:
        return f"{number:03d}-s{seed}"

    def words(self, settings: Mapping[str, Any], seed: int | None = None) -> list[str]:
        """What `omg train` is given for a configuration."""
        spec = self.spec
        named = [f"--config={spec.config}"] * bool(spec.config)
        named += [f"--env-config={spec.env_config}"] * bool(spec.env_config)
        own = [*to_words(spec.settings), *to_words(settings)]
        return [*named, *own, *([] if seed is None else [f"--seed={seed}"])]

    def full_command(self, settings: Mapping[str, Any], number: int, seed: int) -> str:
        """With the place of the run: what the sweep does for it."""
        lies = {
            "local_results_path": str(self.out / "runs"),
            "run_name": self.run_name(number, seed),
        }
        words = [*self.words(settings, seed), *to_words(lies)]
        return masked(shlex.join(["omg", "train", *words]))

    def command(self, settings: Mapping[str, Any], seed: int | None = None) -> str:
        """As a user would type it."""
        return masked(shlex.join(["omg", "train", *self.words(settings, seed)]))

    def config(self, settings: Mapping[str, Any]) -> Config:
        """The configuration of a run, with the seed of the first."""
        return load(parse_arguments(self.words(settings, self.seeds[0]))).config

    def write(self) -> None:
        """Note in the folder whose it is."""
        with writing(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        content = {"format": 1, "sweep": self.spec.model_dump(mode="json")}
        write_text(self.out / FILE, json.dumps(content, indent=2) + "\n")


def plan_of(
    *, options: Mapping[str, Any], words: Sequence[str] = (), space: str = "", out: str = ""
) -> SweepPlan:
    """The sweep of a command line: `options` by name (those that were given), `words` are keys
    and search spaces, `space` is a file that the command line adds to."""
    content = read_file(space) if space else {}
    found = {
        **{_own_name(key): value for key, value in (content.get("space") or {}).items()},
        **{_own_name(d.key): {d.kind: list(d.values)} for d in map(read_word, _spaces(words))},
    }
    given = settings_of(parse_arguments([word for word in words if not is_space(word)]))
    settings = merged(content.get("settings") or {}, given)
    merged_content = {**content, **options, "space": found, "settings": settings}
    spec = checked(merged_content, "omg sweep")
    name = f"sweep-{Path(spec.config).stem}-{Path(spec.env_config).stem}"
    name = Path(space).stem if space else re.sub(r"[^\w.+-]+", "_", name)
    return make_plan(spec, user_path(out or f"results/{name}").absolute())


def _spaces(words: Sequence[str]) -> list[str]:
    return [word for word in words if is_space(word)]


def _own_name(key: Any) -> str:
    head, dot, rest = str(key).partition(".")
    return f"{ALIASES.get(head, head)}{dot}{rest}"


def saved_plan(out: Path, changes: Mapping[str, Any] | None = None) -> SweepPlan:
    """The sweep whose folder this is; `changes`: to what may differ in a continuation."""
    path = out / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["sweep"]
    except FileNotFoundError:
        raise OmgError(
            f"{out} has no sweep to continue (no {FILE} in it). Start one without --resume."
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise OmgError(f"{path} is damaged ({error}). Restore it.") from error
    return make_plan(checked({**content, **(changes or {})}, str(path)), out)


def check_out(plan: SweepPlan, *, resume: bool) -> None:
    """Refuse the folder of another sweep, and the same one unless it is to go on."""
    path = plan.out / FILE
    if not path.exists():
        if resume:
            saved_plan(plan.out)
        if plan.out.exists() and (not plan.out.is_dir() or any(plan.out.iterdir())):
            raise OmgError(f"--out={plan.out} holds something else. Choose a new folder.")
        return
    before = saved_plan(plan.out).spec
    changed = [
        key
        for key, value in before.model_dump().items()
        if key not in FREE and value != plan.spec.model_dump()[key]
    ]
    if changed:
        raise OmgError(
            f"--out={plan.out} holds another sweep: {', '.join(changed)} differ. Choose another "
            "--out, or continue that one with --resume and --out alone."
        )
    if not resume:
        raise OmgError(
            f"--out={plan.out} holds this sweep already. Continue it with --resume, or choose "
            "another --out."
        )


def make_plan(spec: SweepSpec, out: Path) -> SweepPlan:
    """Check everything that can be checked without a game."""
    if not (spec.config or spec.settings.get("learner")):
        raise OmgError("Which algorithm? Give --config=<alg>, and --env-config=<env>.")
    dimensions = spec.dimensions()
    _check_keys(spec, dimensions)
    if not dimensions:
        raise OmgError(
            "There is nothing to sweep over. Give a search space, e.g. lr=grid:0.0005,0.001; "
            "seeds alone are trained by omg train --seeds=1:4."
        )
    found, count, notes = _configurations(spec, dimensions)
    plan = SweepPlan(
        spec=spec,
        out=out,
        dimensions=dimensions,
        configurations=tuple(found),
        count=count,
        notes=tuple(notes),
    )
    for settings in found or corners(dimensions):
        config = plan.config(settings)
        sanity_check(config)
        if spec.scheduler == "pbt":
            _check_exchange(spec, config)
    return plan


def _check_exchange(spec: SweepSpec, config: Config) -> None:
    """What members of a population hand on is their newest resume state."""
    interval = spec.perturb or max(1, config.t_max // 10)
    if not 0 < config.resume_interval <= interval:
        raise OmgError(
            f"resume_interval={config.resume_interval} leaves no state to hand on every "
            f"{interval} steps. Set it to --perturb or less, and above 0."
        )


def _check_keys(spec: SweepSpec, dimensions: Sequence[Dimension]) -> None:
    keys = [d.key for d in dimensions]
    for key in [*keys, *spec.settings]:
        head = key.partition(".")[0]
        if head in RESERVED:
            raise OmgError(f"'{head}' is set by the sweep. {RESERVED[head]}.")
        if head not in Config.model_fields:
            known = [*Config.model_fields, *ALIASES]
            hint = nearest(head, known) or ". 'omg config show' lists all."
            raise OmgError(f"Unknown key '{head}' in the sweep{hint}")
    for key in keys:
        if _holds(spec.settings, key):
            raise OmgError(f"'{key}' has one value and a search space. Keep one of them.")
    if spec.scheduler != "pbt":
        return
    rigid = [key for key in keys if key not in PERTURBABLE]
    if rigid:
        raise OmgError(
            f"pbt cannot change {', '.join(rigid)} in a run that goes on. It can change: "
            f"{', '.join(sorted(PERTURBABLE))}."
        )


def _holds(settings: Mapping[str, Any], key: str) -> bool:
    node: Any = settings
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True


def _configurations(
    spec: SweepSpec, dimensions: Sequence[Dimension]
) -> tuple[list[dict[str, Any]], int, list[str]]:
    """What is tried: the settings (none with Optuna), how many, and what to say about it."""
    search, wanted = spec.search_kind(), spec.samples or DRAWN
    if search == "optuna":
        _check_count(wanted)
        return [], wanted, []
    if search == "grid":
        found = _every(spec, dimensions)
        return found, len(found), []
    rng = SeedTree(spec.draw_seed).numpy("sweep")
    if spec.scheduler == "pbt":
        if wanted < 4:
            raise OmgError(f"pbt needs a population of 4 runs at least. Raise --samples={wanted}.")
        _check_count(wanted)
        drawn = draws(dimensions, wanted, rng)
        return [drawn[i % len(drawn)] for i in range(wanted)], wanted, []
    fixed = [d for d in dimensions if d.kind == "grid"]
    wished = wanted * size_of(fixed)
    _check_count(wished)
    grid = combinations(fixed)
    drawn = draws([d for d in dimensions if d not in fixed], wanted, rng)
    order = [d.key for d in dimensions]
    both = ({**point, **draw} for draw in drawn for point in grid)
    found = [{key: one[key] for key in order} for one in both]
    fewer = bool(spec.samples) and len(found) < wished
    told = f"There are only {len(found)} different configurations, not {wished}."
    return found, len(found), [told] * fewer


def _every(spec: SweepSpec, dimensions: Sequence[Dimension]) -> list[dict[str, Any]]:
    """All of a grid; options that only draws have are refused."""
    ranges = [d.written() for d in dimensions if not d.is_list]
    if ranges:
        raise OmgError(
            f"--search=grid cannot try every value of {ranges[0]}. Give a list "
            "(key=grid:a,b), or use --search=random."
        )
    count = size_of(dimensions)
    for option, value in (("samples", spec.samples), ("draw-seed", spec.draw_seed)):
        if value:
            raise OmgError(
                f"--{option}={value} has no effect with --search=grid, which tries all {count}. "
                "Leave it out, or use --search=random."
            )
    _check_count(count)
    return combinations(dimensions)


def _check_count(count: int) -> None:
    if count > MOST:
        raise OmgError(
            f"That makes {count:,} configurations, and {MOST:,} are the most. Give fewer values, "
            "or draw some of them: key=choice:a,b with --samples."
        )
