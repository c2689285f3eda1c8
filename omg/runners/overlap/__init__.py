"""Collect while learning: episodes are played in a process of their own (`collect_ahead`).

The learner's process holds a `Collector`, which looks like a rollout. The collector's process holds
the rollout itself. A hand-over is what was played up to and including a step that ended episodes.
Weights have a version, the number of hand-overs they were learned from. Hand-over k is always
played with version max(0, k - 1 - collect_ahead): what is played does not depend on how fast
either side is.
"""

from omg.runners.overlap.collector import Collector, CollectorProcess, Link

__all__ = ["Collector", "CollectorProcess", "Link"]
