"""`python -m benchmarks.roofline`: how fast the kernels are beside what the machine can do.

The peak is a large product of packed matrices made from the kernels' own tiles, on one thread, or
torch's, if that is faster. Operations are those that the sizes ask for, without padding; memory is
what a call must read and write at least once if nothing of it is in a cache. CPU seconds, medians.
With OMG_ARCH=x86-64-v3 the kernels use AVX2 only.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from time import thread_time

import torch

from benchmarks.report import markdown_table, plain_table
from omg import compiled
from omg.components.action_selectors import Mixture
from omg.modules import device
from omg.modules.agents.networks import RNNAgent
from omg.modules.kernels.optimiser import FastAdam, optimiser_kernel
from omg.modules.kernels.ppo import PolicyLoss, Taken, ppo_kernel
from omg.modules.kernels.qmix import TDLoss, Transitions, qmix_kernel
from omg.modules.kernels.subgoal import Lessons, subgoal_kernel
from omg.modules.mixers import QMixer

INPUTS, HIDDEN, ACTIONS = 26, 64, 5  # Spread's, with last action and seat
AGENTS, EPISODES, STEPS, STATE = 3, 32, 26, 54
HEADER = ("kernel", "MFLOP", "MB", "FLOP/byte", "ms", "GFLOP/s", "of the peak")


@dataclass(frozen=True)
class Piece:
    """A call, and what it has to do."""

    what: str
    run: Callable[[], object]
    operations: float
    floats: float  # that are read or written


def seconds_of(run: Callable[[], object], repeats: int = 25) -> float:
    """Median CPU seconds of a call."""
    times = []
    for _ in range(repeats + 3):
        start = thread_time()
        run()
        times.append(thread_time() - start)
    return median(times[3:])


@cache
def peak() -> float:
    """Floating-point operations per second of one core."""
    left, right, out = (torch.ones(768, 768) for _ in range(3))
    found = [2 * 768**3 / seconds_of(lambda: torch.mm(left, right, out=out))]
    source = Path(__file__).with_name("peak.c")
    library, _ = compiled.load_library(source, device.FLAGS)
    if library is not None:
        library.peak_operations.restype = ctypes.c_double
        made = library.peak_operations(40)
        found.append(made / seconds_of(lambda: library.peak_operations(40)))
    return max(found)


def _agent_cost(rows: int) -> tuple[float, float]:
    """Operations of a forward pass of the agent, and the floats of its inputs and outputs."""
    layers = INPUTS * HIDDEN + 6 * HIDDEN**2 + HIDDEN * ACTIONS
    return 2.0 * rows * layers, rows * float(INPUTS + HIDDEN + ACTIONS)


def _agent(rows: int, steps: int) -> list[Piece]:
    """The recurrent agent: a pass without gradients, one with them, and a whole PPO step."""
    torch.manual_seed(0)
    agent = RNNAgent(input_dim=INPUTS, n_actions=ACTIONS, hidden_dim=HIDDEN)
    every, sizes = rows * steps, torch.full((steps,), rows)
    inputs, carry = torch.randn(every, INPUTS), torch.zeros(rows, HIDDEN)
    forward, moved = _agent_cost(every)
    weigh = torch.randn(every, ACTIONS)
    inputs_gradient = 2.0 * every * INPUTS * HIDDEN  # nobody wants it

    @torch.no_grad()
    def target() -> None:
        agent.unroll_packed(inputs, sizes, carry)

    def trained() -> None:
        (agent.unroll_packed(inputs, sizes, carry)[0] * weigh).sum().backward()

    kept = every * (HIDDEN + 5.0 * HIDDEN)  # the input layer, gates and states, there and back
    name = f"{rows} sequences x {steps}"
    pieces = [
        Piece(f"agent, forward, {name}", target, forward, moved),
        Piece(
            f"agent, forward and backward by autograd, {name}",
            trained,
            3 * forward - inputs_gradient,
            moved + 2 * kept,
        ),
    ]
    kernel, _ = ppo_kernel()
    if kernel is not None:
        taken = Taken(
            torch.ones(every, ACTIONS, dtype=torch.bool),
            torch.zeros(every, dtype=torch.int64),
            torch.full((every,), -1.6),
            torch.randn(every),
        )
        loss = PolicyLoss(kernel, taken, Mixture(), 0.2, 0.01)
        pieces.append(
            Piece(
                f"agent with PPO's loss, forward and backward in one call, {name}",
                lambda: agent.fit_packed(inputs, sizes, loss),
                3 * forward - inputs_gradient,
                every * (INPUTS + ACTIONS / 4 + 4.0),
            )
        )
    return pieces


def _mixer() -> list[Piece]:
    """QMIX's loss of 32 episodes of Spread."""
    kernel, _ = qmix_kernel()
    if kernel is None:
        return []
    torch.manual_seed(0)
    slots, count, embed, hyper = EPISODES * STEPS, EPISODES * (STEPS - 1), 32, 64
    mixers = [
        QMixer(n_agents=AGENTS, state_dim=STATE, embed_dim=embed, hypernet_embed=hyper)
        for _ in range(2)
    ]
    now = torch.arange(count)
    of = Transitions(
        now=now,
        next=now + EPISODES,
        actions=torch.zeros(count, AGENTS, dtype=torch.int64),
        reward=torch.randn(count),
        over=torch.zeros(count, dtype=torch.bool),
        state=torch.randn(slots, STATE),
        avail=torch.ones(slots, AGENTS, ACTIONS, dtype=torch.bool),
    )
    values = torch.randn(slots, AGENTS, ACTIONS)
    weights = mixers[0].weights(), mixers[1].weights()
    loss = TDLoss(kernel, values, of, weights, gamma=0.99, double=True)
    first, second = STATE * 2 * (hyper + embed), hyper * embed * (AGENTS + 1)
    operations = 2.0 * count * (3 * first + 4 * second)  # two passes, and back
    floats = count * 2.0 * STATE + 3.0 * values.numel()
    what = f"QMIX's loss with its gradients, {count} transitions"
    return [Piece(what, lambda: loss.of_values(values), operations, floats)]


def _subgoals() -> list[Piece]:
    """OMG's inference of 64 episodes of Foraging, and its loss."""
    kernel, _ = subgoal_kernel()
    if kernel is None:
        return []
    torch.manual_seed(0)
    seen, embed, given, hidden, subgoal = dims = (15, 128, 128, 128, 64)
    slots, count = 64 * 51, 64 * 50
    weights = [torch.randn(shape) / 16 for shape in kernel._shapes(dims)]
    own, condition, noise = (torch.randn(slots, width) for width in (seen, given, subgoal))
    lessons = Lessons(
        *(torch.arange(count), torch.randint(slots, (count,))),
        *(torch.randn(slots, subgoal) for _ in range(2)),
    )
    drawn = kernel.forward(own, condition, noise, weights)
    inferring = 2.0 * slots * (seen * embed + (embed + given) * hidden + hidden * 2 * subgoal)
    decoding = 2.0 * count * ((subgoal + given) * hidden + hidden * embed)
    back = 2 * (inferring + decoding) - 2.0 * slots * seen * embed  # nobody wants that gradient
    moved = slots * float(seen + given + 3 * subgoal)
    return [
        Piece(
            f"OMG's inference, {slots:,} slots",
            lambda: kernel.forward(own, condition, noise, weights),
            *(inferring, moved + slots * subgoal),
        ),
        Piece(
            f"its loss with all gradients, {count:,} transitions",
            lambda: kernel.fit(own, drawn, lessons, weights, kl_weight=0.1),
            *(decoding + back, 2 * moved + slots * given),
        ),
    ]


def _optimiser() -> list[Piece]:
    if optimiser_kernel()[0] is None:
        return []
    parameters = [torch.nn.Parameter(torch.randn(200, 200))]
    parameters[0].grad = torch.randn(200, 200)
    adam, count = FastAdam(parameters, lr=1e-4), parameters[0].numel()
    return [Piece("Adam's step, 40,000 weights", adam.step, 12.0 * count, 7.0 * count)]


def rows() -> list[list[str]]:
    """Lines of the table."""
    device.tune_allocator()
    found = []
    pieces = [*_agent(96, 26), *_agent(96, 25)[2:], *_mixer(), *_subgoals(), *_optimiser()]
    for piece in pieces:
        seconds = seconds_of(piece.run)
        speed = piece.operations / seconds
        found.append(
            [
                piece.what,
                f"{piece.operations / 1e6:,.1f}",
                f"{4 * piece.floats / 1e6:,.2f}",
                f"{piece.operations / (4 * piece.floats):,.0f}",
                f"{1e3 * seconds:.2f}",
                f"{speed / 1e9:.0f}",
                f"{100 * speed / peak():.0f} %",
            ]
        )
    found.append(["a large packed product", "-", "-", "-", "-", f"{peak() / 1e9:.0f}", "100 %"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.roofline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print((markdown_table if given.markdown else plain_table)(HEADER, rows()))


if __name__ == "__main__":
    main()
