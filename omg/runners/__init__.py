"""Runners make episodes. They differ only in where the copies of the environment live."""

from omg.runners.assembly import RUNNERS, Runner, runner_of

__all__ = ["RUNNERS", "Runner", "runner_of"]
