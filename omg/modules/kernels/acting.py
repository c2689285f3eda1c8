"""A recurrent agent acts in one call: inputs, a step of its network and the choice of actions. The
same as `InputBuilder`, `RNNAgent.step` and the selectors, without gradients."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.action_selectors import Choice, Mixture
from omg.modules.device import (
    Found,
    agreed,
    kernel_threads,
    largest_difference,
    load_kernel,
    plain,
    switched,
)
from omg.modules.kernels.stacked import packed_size, stacked_kernel

_HOW = {"best": 0, "epsilon": 1, "sample": 2}
_STORED = {torch.float32: 0, torch.int8: 1, torch.uint8: 2}


class _Acting(ctypes.Structure):
    """`Acting` of the library."""

    _pointers = (
        *("obs", "last", "seats", "avail", "before", "weights", "chances", "draws"),
        *("after", "work", "actions"),
    )
    _ints = (
        *("R", "O", "H", "A", "N", "seated", "shows_last", "shows_seat", "how", "mask_after"),
        "threads",
    )
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _pointers),
        *((name, ctypes.c_int64) for name in _ints),
        *((name, ctypes.c_float) for name in ("scale", "epsilon", "temperature", "share")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a policy is shown beside its observation, and how that is scaled."""

    n_agents: int
    last_action: bool
    seat: bool
    scale: float = 1.0

    def width(self, obs_dim: int, n_actions: int) -> int:
        """Of the inputs."""
        return obs_dim + self.last_action * n_actions + self.seat * self.n_agents


class ActingKernel:
    """Calls into the compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.acting_struct_size.restype = ctypes.c_int64
        if library.acting_struct_size() != ctypes.sizeof(_Acting):
            raise RuntimeError("acting.c and acting.py differ in their struct")
        library.acting_step.argtypes = [ctypes.c_void_p]
        library.acting_inputs.argtypes = [
            *[ctypes.c_int64] * 7,
            *(ctypes.c_int, ctypes.c_int, ctypes.c_float, ctypes.c_int),
            *[ctypes.c_void_p] * 5,
        ]
        self._step, self._inputs = library.acting_step, library.acting_inputs
        self._lanes: int = library.acting_lanes()
        self._max_hidden: int = library.acting_max_hidden()

    def fits(self, obs: Tensor, hidden_size: int) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        usual = obs.is_cpu and obs.dtype is torch.float32 and obs.numel() > 0
        return usual and not hidden_size % (2 * self._lanes) and hidden_size <= self._max_hidden

    def act(
        self,
        packed: Tensor,
        shown: Shown,
        obs: Tensor,
        last: Tensor,
        avail: Tensor,
        seats: Tensor | None,
        before: Tensor,
        choice: Choice,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """With weights of `StackedKernel.pack_one`: obs [B, n, O], last actions and seats [B, n]
        (None: all in order), avail [B, n, A], hidden states [B, n, H] -> actions [B, n] and the
        next hidden states."""
        lead, width, hidden, actions = last.shape, obs.shape[-1], before.shape[-1], avail.shape[-1]
        inputs, rows = shown.width(width, actions), last.numel()
        given = [t.contiguous() for t in (obs, last, avail, before)]
        seats = None if seats is None else seats.contiguous()
        where = None if seats is None else seats.data_ptr()
        agreed(
            *(t.shape[:2] == lead for t in (obs, avail, before)),
            *(plain(given[0], given[3]), last.dtype is torch.int64, avail.dtype is torch.bool),
            seats is None or (seats.shape == lead and seats.dtype is torch.int64),
            seats is not None or lead[1] <= shown.n_agents,
            packed.numel() == packed_size(inputs, hidden, actions, self._lanes),
        )
        chances, draws = choice.draws(avail, generator)
        after, found = torch.empty_like(given[3]), torch.empty_like(given[1])
        work = packed.new_empty(rows * (inputs + actions))
        mixture = choice.mixture
        told = _Acting(
            *(given[0].data_ptr(), given[1].data_ptr(), where),
            *(given[2].data_ptr(), given[3].data_ptr(), packed.data_ptr()),
            *(None if t is None else t.data_ptr() for t in (chances, draws)),
            *(after.data_ptr(), work.data_ptr(), found.data_ptr()),
            *(rows, width, hidden, actions, shown.n_agents, lead[1], shown.last_action, shown.seat),
            *(_HOW[choice.how], mixture.mask_after, kernel_threads()),
            *(shown.scale, choice.epsilon, mixture.temperature, mixture.share),
        )
        if self._step(ctypes.addressof(told)):
            raise IndexError("a last action or a seat does not exist")
        return found, after

    def inputs(
        self,
        shown: Shown,
        obs: Tensor,
        actions: Tensor,
        place: Tensor,
        seats: Tensor | None,
        n_actions: int,
    ) -> Tensor | None:
        """Inputs [P, n, I] of stored episodes: obs [B, T, n, O] and actions [B, T, n] as they are
        kept, place [P] = episode * T + time, seats [B, n] (None: in order); None: not for these."""
        kind = _STORED.get(obs.dtype)
        if kind is None or actions.dtype is not torch.uint8 or not obs.is_cpu:
            return None
        batch, steps, agents, width = obs.shape
        given = [t.contiguous() for t in (obs, actions, place)]
        seats = None if seats is None else seats.contiguous()
        agreed(
            *(actions.shape == obs.shape[:3], place.ndim == 1, place.dtype is torch.int64),
            seats is None or (seats.shape == (batch, agents) and seats.dtype is torch.int64),
        )
        size = shown.width(width, n_actions)
        found = torch.empty(len(place), agents, size)
        if self._inputs(
            *(len(place), batch, steps, agents, width, n_actions, shown.n_agents),
            *(shown.last_action, shown.seat, shown.scale, kind, *(t.data_ptr() for t in given)),
            *(None if seats is None else seats.data_ptr(), found.data_ptr()),
        ):
            raise IndexError("a slot or a seat does not exist")
        return found


def _self_test(kernel: ActingKernel) -> float:
    """Largest difference to torch's own layers on a small case, and one for a wrong action."""
    copies, agents, width, hidden, actions = 17, 3, 4, 64, 5
    generator = torch.Generator().manual_seed(0)
    shown = Shown(n_agents=agents, last_action=True, seat=True, scale=0.5)
    inputs = shown.width(width, actions)
    shapes = [(hidden, inputs), (hidden,), *[(3 * hidden, hidden)] * 2, *[(3 * hidden,)] * 2]
    shapes += [(actions, hidden), (actions,)]
    weights = [torch.randn(shape, generator=generator) / 8 for shape in shapes]
    obs = torch.randn(copies, agents, width, generator=generator)
    before = torch.randn(copies, agents, hidden, generator=generator)
    last = torch.randint(-1, actions, (copies, agents), generator=generator)
    avail = torch.rand(copies, agents, actions, generator=generator) < 0.6
    avail[..., 0] = True
    one_hot = (last.unsqueeze(-1) == torch.arange(actions)).float()
    seats = torch.eye(agents).expand(copies, -1, -1)
    x = torch.cat([obs * 0.5, one_hot, seats], -1).flatten(0, 1)
    x = torch.relu(torch.nn.functional.linear(x, *weights[:2]))
    hidden_after = torch.gru_cell(x, before.flatten(0, 1), *weights[2:6])
    outputs = torch.nn.functional.linear(hidden_after, *weights[6:]).view(copies, agents, -1)
    worst = 0.0
    stacked, reason = stacked_kernel()
    if stacked is None:
        raise RuntimeError(reason)
    packed = stacked.pack_one(weights)
    for choice in (
        Choice("best"),
        Choice("epsilon", 0.5),
        Choice("sample", 0.0, Mixture(2.0, 0.1)),
    ):
        draws = torch.Generator().manual_seed(1)
        told = (obs, last, avail, None, before, choice)
        found, after = kernel.act(packed, shown, *told, draws)
        expected = choice(outputs, avail, draws.manual_seed(1))
        off = float((found != expected).float().mean())
        worst = max(worst, off, largest_difference([(after.flatten(0, 1), hidden_after)]))
    return worst


@switched
def acting_kernel() -> Found[ActingKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("acting.c", ActingKernel, _self_test)
