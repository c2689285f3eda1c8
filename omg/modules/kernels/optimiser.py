"""Clipping, Adam and RMSprop in one call each: for small networks torch spends its time between
the operations. State and formulas are torch's; so are all cases the kernel does not take."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from omg.modules.device import Found, largest_difference, load_kernel, plain, pointers, switched


def _sizes(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(tensors))(*(tensor.numel() for tensor in tensors))


class OptimiserKernel:
    """The compiled functions, told their argument types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        numbers = [ctypes.c_double] * 4
        library.clip_gradients.restype = ctypes.c_float
        library.clip_gradients.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_float]
        library.adam_step.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 6, *numbers]
        library.rmsprop_step.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 5, *numbers[:3]]
        self.clip, self.adam_step = library.clip_gradients, library.adam_step
        self.rmsprop_step = library.rmsprop_step


def _self_test(kernel: OptimiserKernel) -> float:
    """Differences to the formulas of Adam and RMSprop in two clipped steps, added. (torch's own
    optimisers load its compiler first: see `_without_compiler`.)"""
    worst, start = 0.0, torch.linspace(-1.0, 1.0, 37)
    for kind in (FastAdam, FastRMSprop):
        ours, theirs = nn.Parameter(start.clone()), start.clone()
        optimiser, mean, square = kind([ours], lr=0.1), torch.zeros(37), torch.zeros(37)
        for step in (1, 2):
            ours.grad = torch.cos(start * step)
            norm = ours.grad.norm()
            grad = ours.grad / norm  # clipped to 1
            found = kernel.clip(1, pointers([ours.grad]), _sizes([ours]), 1.0)
            optimiser.step_in_one_call(kernel)
            if kind is FastAdam:
                mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad.square()
                scale = (square / (1 - 0.999**step)).sqrt() + 1e-8
                theirs = theirs - 0.1 * mean / (1 - 0.9**step) / scale
            else:
                square = 0.99 * square + 0.01 * grad.square()
                theirs = theirs - 0.1 * grad / (square.sqrt() + 1e-8)
            worst += largest_difference([(ours, theirs), (torch.tensor(found), norm)])
    return worst


@switched
def optimiser_kernel() -> Found[OptimiserKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("optimiser.c", OptimiserKernel, _self_test)


def _kernel(parameters: Sequence[Tensor]) -> OptimiserKernel | None:
    """The kernel, where it takes these parameters and their gradients."""
    for parameter in parameters:
        grad = parameter.grad
        if grad is None or grad.layout != torch.strided or not plain(parameter, grad):
            return None
    return optimiser_kernel()[0]


def clip_gradients(parameters: Sequence[nn.Parameter], limit: float) -> Tensor:
    """The norm of all gradients together; they are scaled down where it is above `limit`."""
    used = [parameter for parameter in parameters if parameter.grad is not None]
    kernel = _kernel(used)
    if kernel is None or not used:
        norm: Tensor = nn.utils.clip_grad_norm_(parameters, limit, foreach=True)
        return norm
    grads = [parameter.grad for parameter in used if parameter.grad is not None]
    return torch.tensor(kernel.clip(len(used), pointers(grads), _sizes(grads), limit))


def clipped_step(
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], limit: float
) -> Tensor:
    """Clips the gradients of `parameters`, as `clip_gradients`, and makes a step."""
    if isinstance(optimiser, _OneCall):
        kernel = optimiser_kernel()[0]
        norm = None if kernel is None else optimiser.clip_and_step(kernel, parameters, limit)
        if norm is not None:
            return norm
    found = clip_gradients(parameters, limit)
    optimiser.step()
    return found


class _Table(NamedTuple):
    """Where the numbers of some parameters lie, all but their gradients."""

    parameters: list[Tensor]
    places: list[int]
    states: list[Tensor]  # kept, so that the pointers stay good
    params: ctypes.Array[ctypes.c_void_p]
    moments: list[ctypes.Array[ctypes.c_void_p]]
    sizes: ctypes.Array[ctypes.c_int64]


def _without_compiler(method: Any) -> Any:
    """A method of torch's optimisers as it was before torch wrapped it: the wrapper loads torch's
    compiler, only to tell it to stay away, which takes a second of every start."""
    return getattr(method, "__wrapped__", method)


class _OneCall(torch.optim.Optimizer):
    """A step over all parameters of a group in one call, where the kernel takes them."""

    add_param_group = _without_compiler(torch.optim.Optimizer.add_param_group)
    zero_grad = _without_compiler(torch.optim.Optimizer.zero_grad)
    state_dict = _without_compiler(torch.optim.Optimizer.state_dict)
    load_state_dict = _without_compiler(torch.optim.Optimizer.load_state_dict)

    _function: str
    _moments: tuple[str, ...]
    _simple: tuple[str, ...]  # settings that must be off
    _tables: dict[int, _Table] | None = None  # by group

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """The settings the kernel is given."""
        raise AssertionError("every optimiser has its own")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._tables = None
        super().__setstate__(state)

    def step(self, closure: Any = None) -> Any:
        if closure is None and self._step_if_possible():
            return None
        return super().step(closure)

    def _usual(self) -> bool:
        return all(
            isinstance(group["lr"], float) and not any(group.get(name) for name in self._simple)
            for group in self.param_groups
        )

    def _step_if_possible(self) -> bool:
        """False: nothing was done, torch's own step is needed."""
        used = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        kernel = _kernel(used) if self._usual() else None
        if kernel is not None:
            self.step_in_one_call(kernel)
        return kernel is not None

    def clip_and_step(
        self, kernel: OptimiserKernel, parameters: Sequence[Tensor], limit: float
    ) -> Tensor | None:
        """Clips all gradients of `parameters` and makes a step; None: nothing was done, because
        the kernel does not take them."""
        own = [p for group in self.param_groups for p in group["params"]]
        same = len(own) == len(parameters) and all(map(operator.is_, own, parameters))
        grads = [p.grad for p in own]
        if not (same and self._usual() and all(g is not None and not g.is_sparse for g in grads)):
            return None
        if not (plain(*grads) and plain(*own)):
            return None
        if len(self.param_groups) == 1:
            table, places = self._table(0, own), pointers(grads)
            norm = kernel.clip(len(own), places, table.sizes, limit)
            self._call(kernel, self.param_groups[0], table, places)
        else:
            norm = kernel.clip(len(own), pointers(grads), _sizes(own), limit)
            self.step_in_one_call(kernel)
        return torch.scalar_tensor(norm)

    def step_in_one_call(self, kernel: OptimiserKernel) -> None:
        """A step of all parameters that have a gradient."""
        for number, group in enumerate(self.param_groups):
            own = [p for p in group["params"] if p.grad is not None]
            self._call(kernel, group, self._table(number, own), pointers(p.grad for p in own))

    def _call(
        self,
        kernel: OptimiserKernel,
        group: dict[str, Any],
        table: _Table,
        grads: ctypes.Array[ctypes.c_void_p],
    ) -> None:
        getattr(kernel, self._function)(
            *(len(table.parameters), table.params, grads, *table.moments),
            *(table.sizes, *self._numbers(group)),
        )
        torch.autograd.graph.increment_version(table.parameters)

    def _table(self, number: int, own: list[Tensor]) -> _Table:
        """Made once, and again when other parameters have gradients or they have moved."""
        self._tables = self._tables or {}
        known, places = self._tables.get(number), [p.data_ptr() for p in own]
        if known is not None and known.places == places:
            return known
        states = [self._state_of(parameter) for parameter in own]
        names = (*self._moments, "step")
        table = self._tables[number] = _Table(
            own,
            places,
            [state[name] for state in states for name in names],
            pointers(own),
            [pointers(state[name] for state in states) for name in names],
            _sizes(own),
        )
        return table

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in self._moments:
                state[name] = torch.zeros_like(parameter)
        for name in ("step", *self._moments):  # a loaded state may be anything
            if not plain(state[name]):
                state[name] = state[name].to("cpu", torch.float32).contiguous()
        return state


class FastAdam(_OneCall, torch.optim.Adam):
    """torch's Adam, in one call on a CPU."""

    _function, _moments = "adam_step", ("exp_avg", "exp_avg_sq")
    _simple = ("weight_decay", "amsgrad", "maximize", "capturable", "differentiable")

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        return group["lr"], *group["betas"], group["eps"]


class FastRMSprop(_OneCall, torch.optim.RMSprop):
    """torch's RMSprop, in one call on a CPU."""

    _function, _moments = "rmsprop_step", ("square_avg",)
    _simple = ("weight_decay", "momentum", "centered", "maximize", "capturable", "differentiable")

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        return group["lr"], group["alpha"], group["eps"]
