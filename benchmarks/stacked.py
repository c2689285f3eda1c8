"""`python -m benchmarks.stacked`: 512 rows of 64 networks in one call, against one network.

All sides alternate in one run; CPU seconds of this thread, so that a busy machine disturbs less.
A ratio compares with the faster way to compute the rows by one network: the network itself, or a
stack that holds only it.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time

import torch

from omg.modules.agents.networks import RNNAgent
from omg.modules.agents.stacked import StackedAgents
from omg.modules.device import tune_allocator

ROWS, HIDDEN, INPUTS, ACTIONS = 512, 64, 23, 6
DRAWN = "drawn at random"
Step = Callable[[], object]


def steps(members: int) -> dict[str, Step]:
    """What is timed: `RNNAgent.step` itself, K = 1, K = `members` with several line-ups, the same
    by torch's products (what happens without a compiler), and one call per network."""
    torch.manual_seed(0)
    networks = [
        RNNAgent(input_dim=INPUTS, n_actions=ACTIONS, hidden_dim=HIDDEN) for _ in range(members)
    ]
    inputs, carry = torch.randn(ROWS, INPUTS), torch.randn(ROWS, HIDDEN)
    one, many = (StackedAgents.from_networks(part) for part in (networks[:1], networks))
    drawn = torch.randint(members, (ROWS,))
    line_ups = {
        "even": torch.arange(ROWS) % members,
        DRAWN: drawn,
        "90 % one member": torch.where(torch.rand(ROWS) < 0.9, 0, drawn),
        "4 members only": torch.arange(ROWS) % 4,
    }
    first = torch.zeros(ROWS, dtype=torch.int64)
    found: dict[str, Step] = {
        "RNNAgent.step": lambda: networks[0].step(inputs, carry),
        "K=1": lambda: one.step_rows(inputs, first, carry),
    }
    for name, who in line_ups.items():
        found[f"K={members}, {name}"] = lambda who=who: many.step_rows(inputs, who, carry)
    by_torch = StackedAgents.from_networks(networks, trainable=True)
    found[f"K={members}, {DRAWN}, torch"] = lambda: by_torch.step_rows(inputs, drawn, carry)
    rows = [(drawn == k).nonzero().squeeze(-1) for k in range(members)]
    found[f"{members} separate calls, {DRAWN}"] = lambda: [
        network.step(inputs[r], carry[r]) for network, r in zip(networks, rows, strict=True)
    ]
    return found


def stacked_throughput(
    members: int = 64, *, rounds: int = 60, repeats: int = 5
) -> dict[str, dict[str, float]]:
    """Rows per second of each; the median, lowest and highest ratio to one network over rounds."""
    candidates = steps(members)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    with torch.inference_mode():
        for _ in range(rounds):
            for name, step in candidates.items():
                step()
                start = thread_time()
                for _ in range(repeats):
                    step()
                seconds[name].append((thread_time() - start) / repeats)
    single = [min(times) for times in zip(seconds["RNNAgent.step"], seconds["K=1"], strict=True)]
    found = {}
    for name, times in seconds.items():
        ratios = sorted(s / t for s, t in zip(single, times, strict=True))
        found[name] = {
            "rows_per_second": ROWS / median(times),
            "one_network": ROWS / median(single),
            "ratio": median(ratios),
            "lowest": ratios[0],
            "highest": ratios[-1],
        }
    return found


def main() -> None:
    torch.set_num_threads(1)
    tune_allocator()
    print(f"{ROWS} rows, hidden {HIDDEN}, input {INPUTS}, one thread; ratios to one network")
    print(f"{'':40}{'rows/s':>12}{'ratio':>8}{'range':>14}")
    for name, found in stacked_throughput().items():
        spread = f"{found['lowest']:.2f}-{found['highest']:.2f}"
        print(f"{name:40}{found['rows_per_second']:>12,.0f}{found['ratio']:>8.2f}{spread:>14}")


if __name__ == "__main__":
    main()
