"""The kernels of networks and games, compiled to watch every access and every undefined operation,
through all their self-tests and some odd sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omg.modules.device import load_library

ROOT = Path(__file__).parents[2]
# Runs in a process of its own, because the watching library must be loaded before everything else.
DRIVER = """
import os
from dataclasses import replace
import torch
from omg.modules import device
del os.environ["LD_PRELOAD"]  # the compiler need not be watched
device.FLAGS = (*device.FLAGS, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                *{more!r})
from omg.envs.battle import kernel as battle
from omg.envs.foraging import kernel as foraging
from omg.envs.particles import kernel as particles
for game in (battle, foraging, particles):
    game.FLAGS = (*game.FLAGS, *device.FLAGS[-3 - len({more!r}):])
from omg.modules.kernels import acting, branches, gru, noise, optimiser, ppo, qmix, stacked, subgoal
from omg.modules.kernels.gru import GRUCore
loaders = (gru.gru_kernel, qmix.qmix_kernel, ppo.ppo_kernel, stacked.stacked_kernel,
           optimiser.optimiser_kernel, subgoal.subgoal_kernel, battle.battle_kernel,
           particles.particle_kernel, acting.acting_kernel, branches.branch_kernel,
           noise.noise_kernel, foraging.foraging_kernel)
for load in loaders:
    kernel, reason = load()
    assert kernel is not None, reason
from tests.unit.test_acting_kernel import CHOICES, Case as Acting
from tests.unit.test_branches import passed
from tests.unit.test_foraging_kernel import KEYS
from tests.unit.test_foraging_kernel import both as forage, play as foraged
for key in KEYS:
    foraged(forage(key, 5, max_episode_steps=9), 30, 0)
from tests.unit.test_layers_kernel import both
from tests.unit.test_particle_kernel import PredatorPreyEnv, SpreadEnv, play
from tests.unit.test_particle_kernel import both as games
most = dict(n_predators=100, n_prey=100, n_obstacles=100, max_cycles=2)
for kind, args in ((SpreadEnv, dict(n_agents=1, max_cycles=1)), (PredatorPreyEnv, most)):
    play(games(kind, args, 3), 5, 0)
from tests.unit.test_ppo_kernel import Mixture, choices, policy_loss
from tests.unit.test_subgoal_kernel import PriorVAE, in_both
from tests.unit.test_subgoal_kernel import kernel as subgoals
from tests.unit.test_td_kernel import Case, RNNAgent
for threads in (1, 2):
    torch.set_num_threads(threads)
    for sizes in ((1, 1, 1, 1), (35, 3, 7, 17)):
        for choice in CHOICES.values():
            Acting(*sizes, hidden=96, some=True).act(choice)
    for sizes in ([1], [33, 32, 8, 1], [70, 5]):
        for inputs, hidden, outputs in ((1, 16, 1), (23, 48, 17)):
            both(sizes, inputs=inputs, hidden=hidden, outputs=outputs, idle=1)
    for sizes, kinds in (([1], 1), ([33, 8, 1], 5), ([4, 2], 90)):
        agent, steps = passed(sizes, kinds=kinds, hidden=48, n_actions=17)
        with torch.no_grad():
            agent.branches(steps), agent.branches(replace(steps, products=None))
    for rows, width in ((1, 16), (33, 48)):
        table = torch.randn(7, width)
        noise.draw_rows(table, table, torch.randint(7, (rows,)), torch.Generator())
        noise.noise((rows, 5), torch.Generator())
    for rows, actions in ((1, 1), (37, 5)):
        outputs, taken = choices(rows, actions, 0, all_count=False)
        policy_loss(outputs, taken, Mixture(1.0, 0.1, True), clip=0.2, entropy_coef=0.1)
    for rows, seen in ((1, 1), (131, 15)):
        in_both(rows, seen, threads=threads)
        encoder = PriorVAE(seen, 48, 32).encoder
        subgoals().prior(torch.randn(rows, seen), list(encoder.parameters()))
    for lengths, agents in (([2], 1), ([9] * 30 + [4] * 11, 3)):
        case = Case(lengths, agents, 5, 0, leavers=agents > 1)
        loss = case.loss(double=True)
        loss.of_values(case.q)
        target = RNNAgent(input_dim=5, n_actions=5, hidden_dim=16)
        for second in (None, target):
            case.loss(double=True).of_network(case.network, case.inputs, case.sizes, second)
print("clean")
"""


def _library(name: str) -> str:
    """Where the compiler keeps a library of its own; empty: it has none."""
    try:
        found = subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return found if Path(found).is_file() else ""


@pytest.mark.long
@pytest.mark.skipif(load_library("gru.c")[0] is None, reason="no C compiler on this machine")
@pytest.mark.skipif(not _library("libasan.so"), reason="the compiler has no address sanitiser")
@pytest.mark.parametrize("more", [(), ("-mno-avx512f",)], ids=["native", "narrow"])
def test_no_kernel_reads_or_writes_where_it_must_not(more: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER.format(more=more)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMG_CACHE": str(tmp_path),
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')}".strip(),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python itself never frees everything
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("clean")
