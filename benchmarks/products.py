"""`python -m benchmarks.products`: a QMIX-RNN update against its bare matrix products.

The update is the one of `benchmarks.ours`: Foraging-8x8-2p-3f, 32 episodes of 50 steps, hidden 64.
Its products are those that the networks' sizes ask for, by torch.mm into memory that is there
already: forward and backward of agent and mixer, and the target pass, which has no backward. The
GRU's recurrent products are 51 small ones, one after the other, as its definition has them. The
mixing itself (2 x 32 numbers per transition) is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks import ours
from benchmarks.clock import now
from omg.config.schema import Config
from omg.types import EnvSpec

EPISODES, STEPS = 32, 50
Shape = tuple[int, int, int]  # [rows, inner] x [inner, columns]


@dataclass(frozen=True)
class Layer:
    """A linear layer over so many rows; `first`: nobody wants the gradient of its inputs."""

    rows: int
    inputs: int
    outputs: int
    first: bool = False
    times: int = 1

    def forward(self) -> Iterator[Shape]:
        for _ in range(self.times):
            yield self.rows, self.inputs, self.outputs

    def backward(self) -> Iterator[Shape]:
        """The gradient of the inputs, step by step; that of the weights, of all steps at once."""
        if not self.first:
            for _ in range(self.times):
                yield self.rows, self.outputs, self.inputs
        yield self.outputs, self.rows * self.times, self.inputs


def layers(config: Config, spec: EnvSpec) -> list[Layer]:
    """Every linear map of QMIX with a recurrent agent and two-layer hyper-networks."""
    agents, state, hidden = spec.n_agents, spec.state_dim, config.rnn_hidden_dim
    embed, hyper = config.mixing_embed_dim, config.hypernet_embed
    sequences, slots = EPISODES * agents, STEPS + 1
    rows, transitions = sequences * slots, EPISODES * STEPS
    seen = spec.obs_dim + spec.n_actions + agents  # observation, last action, seat
    return [
        Layer(rows, seen, hidden, first=True),  # fc1
        Layer(rows, hidden, 3 * hidden),  # the GRU's inputs
        Layer(sequences, hidden, 3 * hidden, times=slots),  # its hidden state
        Layer(rows, hidden, spec.n_actions),  # fc2
        Layer(transitions, state, hyper, first=True),  # hyper_w_1
        Layer(transitions, hyper, agents * embed),
        Layer(transitions, state, hyper, first=True),  # hyper_w_final
        Layer(transitions, hyper, embed),
        Layer(transitions, state, embed, first=True),  # hyper_b_1
        Layer(transitions, state, embed, first=True),  # V
        Layer(transitions, embed, 1),
    ]


def shapes(config: Config, spec: EnvSpec) -> list[Shape]:
    """All products of one update: online forward, target forward, backward."""
    every = layers(config, spec)
    forward = [shape for layer in every for shape in layer.forward()]
    return [*forward, *forward, *(shape for layer in every for shape in layer.backward())]


def products() -> Callable[[], None]:
    """All of them in a row."""
    spec, config = ours.foraging_spec(), ours.foraging_config()
    torch.manual_seed(0)
    operands = {
        (n, k, m): (torch.randn(n, k), torch.randn(k, m), torch.empty(n, m))
        for n, k, m in shapes(config, spec)
    }
    ready = [operands[shape] for shape in shapes(config, spec)]

    @torch.inference_mode()
    def run() -> None:
        for left, right, out in ready:
            torch.mm(left, right, out=out)

    return run


def products_seconds(repeats: int) -> float:
    """Median time of the products of one update."""
    run = products()
    times = []
    for _ in range(repeats + 3):
        start = now()
        run()
        times.append(now() - start)
    return median(times[3:])


def main() -> None:
    flops = 2 * sum(n * k * m for n, k, m in shapes(ours.foraging_config(), ours.foraging_spec()))
    print(f"{flops / 1e6:.0f} million operations in the matrix products of one update")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        pairs = [(ours.update_seconds(12), products_seconds(12)) for _ in range(5)]
        update, bare = (1e3 * median(side) for side in zip(*pairs, strict=True))
        ratio = median(a / b for a, b in pairs)
        print(f"{threads} threads: update {update:.2f} ms, products {bare:.2f} ms, {ratio:.2f}x")


if __name__ == "__main__":
    main()
