"""The stage that tunes: every method gets the same number of configurations, drawn from its own
space by the same search, and they are compared on the validation side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omg.components.seeding import SeedTree
from omg.config.schema import Config, marked
from omg.studies.planner import Planner
from omg.studies.spec import CrossplaySpec, Method, Tuning, slug
from omg.studies.steps import Step, merged, nested, refuse_reserved
from omg.studies.sweep.space import draws, read_dimension
from omg.types import OmgError

STAGE = "tuning"


def tuning_steps(planner: Planner, wanted: Tuning) -> list[Step]:
    """Per method: its runs, the games that compare them, and the choice."""
    steps: list[Step] = []
    for method in planner.spec.agents.methods:
        space = planner.spec.space_of(method)
        if space:
            runs = _runs(planner, wanted, method, space)
            scores = _scores(planner, wanted, method, runs)
            steps += [*runs, scores, _choice(planner, method, tuple(space), scores)]
    return steps


def _runs(planner: Planner, wanted: Tuning, method: Method, space: Mapping[str, Any]) -> list[Step]:
    where = f"tuning.methods.{method.name}"
    agents = planner.spec.agents
    layers = (agents.settings, method.settings, wanted.settings)
    own = planner.config_of(method.config, layers, where)
    _check_keys(planner, method, space, where)
    steps: list[Step] = []
    for number, settings in enumerate(_configurations(planner, wanted, space, own, where)):
        for seed in wanted.seeds:
            places, needs = planner.beginning(method, seed)
            step, _ = planner.train(
                f"{STAGE}/{slug(method.name)}-c{number}-s{seed}",
                where,
                config=method.config,
                settings=(*layers, nested(settings)),
                seed=seed,
                fixed={"label": f"{method.name} c{number}"},
                places=places,
                needs=needs,
            )
            steps.append(step)
    return steps


def _check_keys(planner: Planner, method: Method, space: Mapping[str, Any], where: str) -> None:
    """Refuse what is not the method's own: the game, the prior, what the command line fixes."""
    refuse_reserved(nested(dict.fromkeys(space)), f"{planner.source.shown}: {where}")
    for key in space:
        head = key.partition(".")[0]
        if head in ("env", "env_args"):
            raise planner.error(where, f"'{key}' is the game, which is the same for all methods.")
        if method.prior is not None and head in marked(prior=True):
            raise planner.error(
                where,
                f"'{key}' belongs to the prior '{method.prior}', which is trained once. Leave it "
                "out, or make a method of each value.",
            )
        if head in planner.given:
            raise planner.error(where, f"'{key}' is given on the command line, too. Keep one.")


def _configurations(
    planner: Planner, wanted: Tuning, space: Mapping[str, Any], own: Config, where: str
) -> list[dict[str, Any]]:
    """The method's own values first, then draws; as many as the budget says."""
    try:
        dimensions = [read_dimension(key, content) for key, content in space.items()]
    except OmgError as error:
        raise planner.error(where, str(error)) from error
    first = {key: _value(own, key) for key in space}
    rng = SeedTree(wanted.draw_seed).numpy(STAGE)
    found = [one for one in draws(dimensions, wanted.budget, rng) if one != first]
    chosen = [first, *found[: wanted.budget - 1]]
    if len(chosen) < wanted.budget:
        raise planner.error(
            where,
            f"the space has {len(chosen)} configurations, and every method gets "
            f"budget={wanted.budget}. Widen it, or lower the budget.",
        )
    return chosen


def _value(config: Config, key: str) -> Any:
    value: Any = config.as_dict()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def acting(crossplay: CrossplaySpec | None) -> list[str]:
    """How agents are told to act in games; nothing: as they play."""
    return [f"--{how}" for how in ("sample", "greedy") if getattr(crossplay, how, False)]


def weights(crossplay: CrossplaySpec | None) -> list[str]:
    """Which of an agent's weights play; nothing: the last."""
    return ["--which=best"] if crossplay and crossplay.which == "best" else []


def _scores(planner: Planner, wanted: Tuning, method: Method, runs: list[Step]) -> Step:
    name = slug(method.name)
    crossplay = planner.spec.crossplay
    metric = crossplay.metric if crossplay else "own_return"
    folder = planner.out / STAGE / f"scores-{name}"
    options = [
        f"--pool={planner.pool}",
        "--split=validation",
        f"--episodes={wanted.episodes}",
        f"--metric={metric}",
        *acting(crossplay),
        *weights(crossplay),
        f"--out={folder}",
    ]
    settings = {"episodes": wanted.episodes, "metric": metric}
    forced: dict[str, Any] = {"greedy": True} if crossplay and crossplay.greedy else {}
    forced |= {"which": "best"} if weights(crossplay) else {}
    return Step(
        key=f"{STAGE}/scores-{name}",
        stage=STAGE,
        kind="command",
        commands=(("crossplay", *(str(step.output) for step in runs), *options),),
        settings=merged(settings, {"sample": bool(crossplay and crossplay.sample)}, forced),
        needs=("pool", *(step.key for step in runs)),
        output=folder / "crossplay.json",
        leaves=(f"{STAGE}/scores-{name}",),
    )


def _choice(planner: Planner, method: Method, keys: tuple[str, ...], scores: Step) -> Step:
    name = slug(method.name)
    words = [f"--method={method.name}", f"--keys={','.join(keys)}", f"--out={planner.out}"]
    return Step(
        key=f"{STAGE}/choice-{name}",
        stage=STAGE,
        kind="command",
        commands=(("choose", str(scores.output.parent), *words),),
        settings={"keys": list(keys)},
        needs=(scores.key,),
        output=planner.out / STAGE / f"{name}.yaml",
        leaves=(f"{STAGE}/{name}.csv",),
    )
