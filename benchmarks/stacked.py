"""`python -m benchmarks.stacked`: 512 rows of 64 networks in one call, against one network.

Both sides alternate in one run; CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time

import torch

from omg.modules.agents.rnn import RNNAgent
from omg.modules.agents.stacked import StackedAgents
from omg.run import tune_allocator

ROWS, HIDDEN, INPUTS, ACTIONS = 512, 64, 23, 6
Step = Callable[[], object]


def steps(members: int) -> dict[str, Step]:
    """What is timed: `RNNAgent.step` itself, K = 1, and K = `members` with several line-ups."""
    torch.manual_seed(0)
    networks = [
        RNNAgent(input_dim=INPUTS, n_actions=ACTIONS, hidden_dim=HIDDEN) for _ in range(members)
    ]
    inputs, carry = torch.randn(ROWS, INPUTS), torch.randn(ROWS, HIDDEN)
    one, many = (StackedAgents.from_networks(part) for part in (networks[:1], networks))
    drawn = torch.randint(members, (ROWS,))
    line_ups = {
        "even": torch.arange(ROWS) % members,
        "drawn at random": drawn,
        "90 % one member": torch.where(torch.rand(ROWS) < 0.9, 0, drawn),
        "4 members only": torch.arange(ROWS) % 4,
    }
    first = torch.zeros(ROWS, dtype=torch.int64)
    found: dict[str, Step] = {
        "K=1": lambda: one.step_rows(inputs, first, carry),
        "RNNAgent.step": lambda: networks[0].step(inputs, carry),
    }
    for name, who in line_ups.items():
        found[f"K={members}, {name}"] = lambda who=who: many.step_rows(inputs, who, carry)
    group = many.group(drawn)
    found[f"K={members}, same, grouped before"] = lambda: many.step_rows(inputs, group, carry)
    rows = [(drawn == k).nonzero().squeeze(-1) for k in range(members)]
    found[f"{members} separate calls, drawn at random"] = lambda: [
        network.step(inputs[r], carry[r]) for network, r in zip(networks, rows, strict=True)
    ]
    return found


def stacked_throughput(
    members: int = 64, *, rounds: int = 60, repeats: int = 5
) -> dict[str, dict[str, float]]:
    """Rows per second of each, and the median over rounds of its ratio to K = 1."""
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
    base = seconds["K=1"]
    return {
        name: {
            "rows_per_second": ROWS / median(times),
            "best": ROWS / min(times),
            "ratio": median(b / t for b, t in zip(base, times, strict=True)),
            "ratio_of_best": min(base) / min(times),
        }
        for name, times in seconds.items()
    }


def main() -> None:
    torch.set_num_threads(1)
    tune_allocator()
    print(f"{ROWS} rows, hidden {HIDDEN}, input {INPUTS}, one thread; ratios to K=1")
    print(f"{'':36}{'rows/s':>12}{'best':>12}{'ratio':>8}{'best':>8}")
    for name, found in stacked_throughput().items():
        speeds = f"{found['rows_per_second']:>12,.0f}{found['best']:>12,.0f}"
        print(f"{name:36}{speeds}{found['ratio']:>8.2f}{found['ratio_of_best']:>8.2f}")


if __name__ == "__main__":
    main()
