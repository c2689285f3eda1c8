"""Parts of a kernel's call on several threads: always the same bits, whoever computes them."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from omg.modules.device import load_library
from omg.modules.kernels.gru import GRUKernel, gru_kernel

kernel, reason = gru_kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason=reason)
HIDDEN, WIDTH = 32, 5


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Case:
    """Sequences, and weights of a GRU alone."""

    def __init__(self, rows: int, steps: int) -> None:
        generator = torch.Generator().manual_seed(rows)
        self.sizes = torch.tensor([max(rows - step, 1) for step in range(steps)])
        self.x = torch.randn(int(self.sizes.sum()), WIDTH, generator=generator)
        self.h0 = torch.randn(rows, HIDDEN, generator=generator)
        shapes = [(3 * HIDDEN, WIDTH), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (3 * HIDDEN,)]
        core = [torch.randn(shape, generator=generator) / 4 for shape in shapes]
        self.weights = [None, None, *core, None, None]

    def forward(self) -> Tensor:
        assert isinstance(kernel, GRUKernel)
        return kernel.forward(self.x, self.sizes, self.h0, self.weights, keep=False).hidden

    def gradients(self) -> list[Tensor]:
        assert isinstance(kernel, GRUKernel)
        passed = kernel.forward(self.x, self.sizes, self.h0, self.weights, keep=True)
        given = (torch.ones_like(passed.hidden), None)
        told = (given, self.x, self.sizes, self.h0, self.weights, passed)
        dx, dh0, found = kernel.backward(*told, wanted=(True, True))
        return [t for t in (dx, dh0, *found) if t is not None]


def test_many_calls_in_a_row_give_the_same_bits() -> None:
    case = Case(70, 6)
    outputs, slopes = case.forward(), case.gradients()
    for _ in range(60):
        assert torch.equal(case.forward(), outputs)
        assert all(map(torch.equal, case.gradients(), slopes))


def test_more_threads_than_there_are_rows_change_nothing() -> None:
    case = Case(2, 3)
    torch.set_num_threads(1)
    expected = case.forward()
    for count in (2, 7, 16):
        torch.set_num_threads(count)
        assert torch.equal(case.forward(), expected)


def test_calls_at_once_do_not_disturb_each_other() -> None:
    cases = [Case(rows, 5) for rows in (20, 45, 70, 95)]
    expected = [case.forward() for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            found = list(pool.map(Case.forward, cases))
            assert all(map(torch.equal, found, expected))


def test_a_forked_child_computes_with_helpers_of_its_own() -> None:
    case = Case(70, 6)
    expected = case.forward().numpy().copy()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = [case.forward().numpy() for _ in range(20)]
            code = int(not all((each == expected).all() for each in found))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (case.forward().numpy() == expected).all()


def computed_by(threads: int, parts: int) -> set[int]:
    """Who computes parts that take a while."""
    pool, found = load_library("parts.c")[0], set()

    def compute(_: object, part: int) -> None:
        found.add(threading.get_ident())
        time.sleep(0.005)

    assert pool is not None
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(compute)
    pool.in_parts(threads, parts, run, None)
    return found


def test_fewer_threads_are_used_when_fewer_are_asked_for() -> None:
    assert len(computed_by(4, 40)) == 4
    assert len(computed_by(2, 40)) == 2
    assert computed_by(1, 4) == {threading.get_ident()}


@pytest.mark.long
def test_very_long_sequences_need_no_stack() -> None:
    steps = 150_000
    case = Case(1, 1)
    case.sizes, case.x = torch.ones(steps, dtype=torch.int64), torch.randn(steps, WIDTH)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
            resource.setrlimit(resource.RLIMIT_STACK, (2 * 1024**2, hard))
            torch.set_num_threads(1)
            code = int(not case.gradients()[0].isfinite().all())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
