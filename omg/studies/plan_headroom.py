"""The stage that measures headroom: the best response to each opponent alone, then what all of it
says. The plain agent, the control and the oracle are methods of the study, trained as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.studies.plan_tuning import acting, weights
from omg.studies.planner import Planner, Tuned
from omg.studies.spec import BestResponse, CrossplaySpec, HeadroomSpec, Method, slug
from omg.studies.steps import Step

STAGE = "headroom"
# What a method is for, by its opponent model.
MODELS = {"plain": "none_am", "control": "control_am", "oracle": "oracle_am"}
SEEDS = 3  # of the best responses, unless told: fewer have no interval


def headroom_steps(planner: Planner, wanted: HeadroomSpec, agents: Sequence[Step]) -> list[Step]:
    """A run per opponent and seed, and last the step that measures."""
    methods = _methods(planner, wanted, agents)
    told = wanted.best_response
    responses = [] if told is None else _responses(planner, told, methods["plain"])
    seeds = {name: method.seeds or planner.spec.agents.seeds for name, method in methods.items()}
    used = {
        f"agents/{method.run_name(seed)}"
        for name, method in methods.items()
        for seed in seeds[name]
    }
    needed = [step for step in agents if step.key in used] + responses
    crossplay = planner.spec.crossplay
    options = [
        f"--pool={planner.pool}",
        *(f"--{role}={method.name}" for role, method in methods.items()),
        f"--metric={crossplay.metric if crossplay else 'own_return'}",
        f"--episodes={wanted.episodes}",
        *acting(crossplay),
        *weights(crossplay),
        f"--out={planner.out}",
    ]
    named = {role: method.name for role, method in methods.items()}
    settings = {"episodes": wanted.episodes, "greedy": _greedily(crossplay, needed), **named}
    settings["metric"] = crossplay.metric if crossplay else "own_return"
    settings |= {"which": "best"} if weights(crossplay) else {}
    measure = Step(
        key=STAGE,
        stage=STAGE,
        kind="command",
        commands=(("gap", *(str(step.output) for step in needed), *options),),
        settings=settings,
        needs=("pool", *(step.key for step in needed)),
        output=planner.out / "headroom.json",
        leaves=("headroom.csv", "headroom_sides.csv"),
        spreads=True,
    )
    return [*responses, measure]


def _greedily(crossplay: CrossplaySpec | None, runs: Sequence[Step]) -> bool | None:
    """How all agents will act; None: some greedily, some not."""
    told = acting(crossplay)
    ways = {told == ["--greedy"] if told else bool(run.settings["test_greedy"]) for run in runs}
    return ways.pop() if len(ways) == 1 else None


def _methods(planner: Planner, wanted: HeadroomSpec, agents: Sequence[Step]) -> dict[str, Method]:
    """The methods that headroom is measured by: named, or known by their opponent model."""
    methods = planner.spec.agents.methods
    models = {step.key: step.settings["am_model"] for step in agents}
    seeds = planner.spec.agents.seeds
    found: dict[str, Method] = {}
    for role, model in MODELS.items():
        named = getattr(wanted, role)
        for method in methods:
            first = f"agents/{method.run_name((method.seeds or seeds)[0])}"
            if method.name == named or (named is None and models[first] == model):
                found.setdefault(role, method)
    if "plain" not in found:
        raise planner.error(
            "headroom",
            "no method is without an opponent model. Add one (e.g. config: d3qn), or name the "
            "method to compare with as headroom.plain.",
        )
    return found


def _tuned(planner: Planner, told: BestResponse, plain: Method) -> Tuned | None:
    """The plain method's tuned settings, but for those that best responses have of their own."""
    tuned = planner.tuned(plain)
    if told.config or tuned is None:
        return None
    kept = (key for key in tuned.keys if key.partition(".")[0] not in told.settings)
    return replace(tuned, keys=tuple(kept))


def _responses(planner: Planner, told: BestResponse, plain: Method) -> list[Step]:
    agents = planner.spec.agents
    steps: list[Step] = []
    for member in planner.spec.opponents.members():
        for seed in told.seeds or agents.seeds[:SEEDS]:
            step, config = planner.train(
                f"{STAGE}/{slug(member)}-s{seed}",
                "headroom.best_response",
                config=told.config or plain.config,
                settings=(agents.settings, plain.settings, told.settings),
                seed=seed,
                fixed={"label": f"Best response to {member}", "opponent_members": [member]},
                places={"opponent_pool": str(planner.pool)},
                needs=("pool",),
                tuned=_tuned(planner, told, plain),
            )
            planner.check_one_agent(config, "headroom.best_response")
            if issubclass(model_kind(config), SubgoalModel):
                raise planner.error(
                    "headroom.best_response",
                    f"{config.name} needs a prior. Choose an agent without one, e.g. d3qn.",
                )
            steps.append(step)
    return steps
