"""The classical baseline: QMIX as PyMARL and EPyMARL run it, written here from their behaviour.

It stands for "what one would otherwise use" in our benchmarks. It keeps the structure that decides
speed and memory there: one environment, one small forward per step, a dictionary of tensors updated
step by step, a zero-initialised replay buffer of whole episodes, and recurrent unrolls that are
Python loops over time, for the online and the target network.

It is deliberately written the classical way, and it is not artificially slowed down. Where the
originals differ among themselves or waste time by accident, the faster choice is taken:

- rollouts and the target unroll run without autograd;
- ``Categorical`` is built without argument validation;
- no logging, no observation padding, no environment checker, no wrapper that flattens what is flat;
- an inserted episode is copied into the buffer as tensors, not parsed again.

Time limits are treated as EPyMARL's gymnasium wrapper treats them: the environment's own
``terminated`` flag is stored, and lbforaging raises it at its step limit too.

Nothing here sets the number of torch threads or imports ``omg``; the caller decides the former for
both sides of a comparison.
"""

from .episode_data import (
    EpisodeBatch,
    ReplayBuffer,
    Sizes,
    buffer_bytes,
    bytes_per_transition,
)
from .loop import Controller, Epsilon, ForagingTask, RecurrentAgent, Runner
from .measure import LearningResult, learn, measure_rollout, measure_training, measure_update
from .qmix import Mixer, QmixLearner

__all__ = [
    "Controller",
    "EpisodeBatch",
    "Epsilon",
    "ForagingTask",
    "LearningResult",
    "Mixer",
    "QmixLearner",
    "RecurrentAgent",
    "ReplayBuffer",
    "Runner",
    "Sizes",
    "buffer_bytes",
    "bytes_per_transition",
    "learn",
    "measure_rollout",
    "measure_training",
    "measure_update",
]
