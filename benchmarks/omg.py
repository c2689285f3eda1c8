"""`python -m benchmarks.omg`: what opponent modelling costs, against plain IQL in the same team.

All sides of a comparison alternate in one run, on one torch thread; CPU seconds of this thread, so
that a busy machine disturbs less. Medians over the rounds, with the lowest and highest ratio.

- update: `iql_omg` (H = 5) on 32 x 2 episodes of 50 steps in which one agent learns, against IQL
  (`q_learner_4am`, `none_am`) on the same episodes, and against IQL of a whole team on 32 episodes:
  both learn from 64 trajectories. The share of ḡ is 0, as it is after its annealing; `early` has
  the share 0.5 of the first updates, which needs one more unroll.
- acting: both agents beside the same 16 frozen recurrent opponents; choosing actions alone
  (`mac.act`), and whole steps with environment, storing and restarts (`Rollout.step`).
- stacked: see `benchmarks.stacked`.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time

import numpy as np
import torch

from benchmarks.stacked import DRAWN, stacked_throughput
from omg.components.episodes import EpisodeBatch, Scheme, environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import SEAT
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.envs.registry import make_batched
from omg.learners.base import Progress
from omg.modules.device import tune_allocator
from omg.opponents.building import group_policies
from omg.opponents.lineups import OneLearns, PoolDraw
from omg.opponents.players import Players
from omg.opponents.pool_members import PoolMember
from omg.policies.inputs import StepView
from omg.policies.policy import Policy
from omg.runners.assembly import build_learner
from omg.runners.rollout import Rollout
from omg.types import EnvSpec

KEY = "Foraging-8x8-2p-3f-v3"
CPU = torch.device("cpu")
OMG = ["--config=iql_omg", "--subgoal_horizon=5"]
IQL = ["--config=iql_am", "--am_model=none_am"]
TEAM = ["--config=iql"]
EPISODES, STEPS, OPPONENTS = 32, 50, 16
ANNEALED = 10**6  # environment steps
Comparison = dict[str, float]


def _config(words: list[str]) -> Config:
    return load_command_line([*words, "--env-config=foraging", f"--env_args.key={KEY}"]).config


def foraging_spec() -> EnvSpec:
    """The game of all measurements here."""
    return make_batched("foraging", {"key": KEY}, n_copies=1).spec


def lineup(spec: EnvSpec, size: int = OPPONENTS) -> OneLearns:
    """One agent beside frozen recurrent policies with random weights, each drawn with equal
    probability; the learning seat rotates."""
    config = _config(TEAM)
    policies = [Policy(config=config, spec=spec, device=CPU) for _ in range(size)]
    members = tuple(
        PoolMember(
            id=f"iql-{n}",
            kind="checkpoint",
            algorithm="iql",
            run=f"iql-{n}",
            skill="final",
            split="train",
            seed=n,
            env_steps=0,
            common_reward=False,
            env="foraging",
        )
        for n in range(size)
    )
    groups = group_policies(policies, epsilon=0.0, device=CPU)
    return OneLearns(
        spec,
        "",
        players=Players([member.id for member in members], groups, spec.n_agents),
        others=PoolDraw(members, spec.roles, "mixed"),
        seat=0,
        shift="rotate",
    )


def _mixed(words: list[str]) -> MultiModuleMAC:
    torch.manual_seed(0)
    spec = foraging_spec()
    return MultiModuleMAC(config=_config(words), spec=spec, device=CPU, lineup=lineup(spec))


def _episodes(scheme: Scheme, spec: EnvSpec, count: int) -> EpisodeBatch:
    """Full-length episodes of random numbers."""
    rng = np.random.default_rng(0)
    slots, agents = STEPS + 1, spec.n_agents
    batch = EpisodeBatch(scheme, batch_size=count, max_seq_length=slots)
    values = {
        "obs": rng.integers(0, 8, (count, slots, agents, spec.obs_dim)),
        "state": rng.integers(0, 8, (count, slots, spec.state_dim)),
        "actions": rng.integers(0, spec.n_actions, (count, slots, agents)),
        "avail_actions": np.ones((count, slots, agents, spec.n_actions), bool),
        "reward": rng.random((count, slots, agents)),
    }
    if SEAT in scheme.fields:
        values[SEAT] = rng.integers(0, agents, count)
    batch.update(values)
    return batch


def _update(words: list[str], episodes: int, env_steps: int = ANNEALED) -> Callable[[], object]:
    config, spec = _config(words), foraging_spec()
    mac: BasicMAC | MultiModuleMAC
    if config.mac == "basic_mac":
        torch.manual_seed(0)
        mac = BasicMAC(config=config, spec=spec, device=CPU)
    else:
        mac = _mixed(words)
    scheme = environment_scheme(spec, common_reward=False).extend(mac.record_fields())
    learner = build_learner(config, spec=spec, mac=mac, device=CPU)
    batch = _episodes(scheme, spec, episodes)
    batch.numbers = np.arange(episodes)  # as in a buffer: the frozen prior knows them already
    return lambda: learner.update(batch, Progress(env_steps, 0, 0))


def _seconds(
    sides: dict[str, Callable[[], object]], *, rounds: int, repeats: int, warm_up: int = 3
) -> dict[str, list[float]]:
    """Seconds per call, all sides in turn."""
    torch.set_num_threads(1)
    tune_allocator()
    found: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(-warm_up, rounds):
        for name, call in sides.items():
            start = thread_time()
            for _ in range(repeats):
                call()
            if round_number >= 0:
                found[name].append((thread_time() - start) / repeats)
    return found


def _compared(ours: list[float], reference: list[float], *, per: float, speed: bool) -> Comparison:
    """Both sides in `per` units per call, or calls x per a second; ratio ours / reference."""
    values = [[per / t if speed else per * t for t in side] for side in (ours, reference)]
    ratios = sorted(a / b for a, b in zip(*values, strict=True))
    return {
        "ours": median(values[0]),
        "reference": median(values[1]),
        "ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def update(rounds: int = 15) -> dict[str, Comparison]:
    """Microseconds of an OMG update against both kinds of IQL updates."""
    sides = {
        "omg": _update(OMG, 2 * EPISODES),
        "early": _update(OMG, 2 * EPISODES, 0),
        "iql": _update(IQL, 2 * EPISODES),
        "team": _update(TEAM, EPISODES),
    }
    found = _seconds(sides, rounds=rounds, repeats=3)
    pairs = {"iql": ("omg", "iql"), "early, iql": ("early", "iql"), "team": ("omg", "team")}
    return {
        name: _compared(found[ours], found[reference], per=1e6, speed=False)
        for name, (ours, reference) in pairs.items()
    }


def _acting(words: list[str], copies: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """(choosing actions alone, whole steps) of a learning agent among the opponents."""
    mac = _mixed(words)
    env = make_batched("foraging", {"key": KEY}, n_copies=copies)
    rollout = Rollout(
        env=env,
        mac=mac,
        scheme=environment_scheme(env.spec, common_reward=False).extend(mac.record_fields()),
        seeds=SeedTree(0),
        stream="train",
        device=CPU,
        common_reward=False,
        reward_scalarisation="sum",
    )
    seen = make_batched("foraging", {"key": KEY}, n_copies=copies).reset(0)
    view = StepView(
        obs=torch.from_numpy(seen.obs),
        state=torch.from_numpy(seen.state),
        avail=torch.from_numpy(seen.avail),
        last_actions=torch.zeros(copies, env.spec.n_agents, dtype=torch.int64),
    )
    carry = mac.initial_carry(copies)
    mac.begin_episodes(carry, np.arange(copies), np.random.default_rng(0))
    generator = torch.Generator().manual_seed(0)

    @torch.inference_mode()
    def act() -> object:
        return mac.act(view, carry, env_steps=0, greedy=False, generator=generator)

    return act, lambda: rollout.step(0)


def acting(copies: int, rounds: int = 25) -> dict[str, Comparison]:
    """Env-steps per second with OMG against IQL: `mac.act` alone, and `Rollout.step`."""
    (omg_act, omg_step), (iql_act, iql_step) = (_acting(words, copies) for words in (OMG, IQL))
    sides = {"omg_act": omg_act, "iql_act": iql_act, "omg_step": omg_step, "iql_step": iql_step}
    found = _seconds(sides, rounds=rounds, repeats=20)
    return {
        what: _compared(found[f"omg_{what}"], found[f"iql_{what}"], per=copies, speed=True)
        for what in ("act", "step")
    }


def stacked() -> Comparison:
    """Rows per second of 64 members in one call against one member."""
    found = stacked_throughput()[f"K=64, {DRAWN}"]
    return {"ours": found["rows_per_second"], "reference": found["one_network"], **found}


def main() -> None:
    torch.set_num_threads(1)
    rows = [
        (f"OMG update / IQL update, {name}", "µs", found, "≤ 4" if name == "iql" else "-")
        for name, found in update().items()
    ]
    for copies in (16, 256):
        rows += [
            (f"OMG {what} / IQL {what}, {copies} copies", "env-steps/s", found, "≥ 0.4")
            for what, found in acting(copies).items()
        ]
    rows.append(("64 members / one, 512 rows", "rows/s", stacked(), "≥ 0.5"))
    print(f"{'':40}{'unit':>14}{'ours':>12}{'reference':>12}{'ratio':>8}{'range':>14}{'wanted':>8}")
    for what, unit, found, wanted in rows:
        spread = f"{found['lowest']:.2f}-{found['highest']:.2f}"
        numbers = f"{found['ours']:>12,.0f}{found['reference']:>12,.0f}{found['ratio']:>8.2f}"
        print(f"{what:40}{unit:>14}{numbers}{spread:>14}{wanted:>8}")


if __name__ == "__main__":
    main()
