"""The clock of the comparisons."""

from __future__ import annotations

from time import perf_counter, thread_time

from omg.modules.device import kernel_threads


def now() -> float:
    """CPU seconds of this thread where one thread computes, so that a busy machine disturbs less;
    where it has several, their work is not this thread's, and it is the time that passes."""
    return thread_time() if kernel_threads() == 1 else perf_counter()
