"""A trained policy as a file for other programs: ONNX, or a program of `torch.export`."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.envs.registry import make_batched
from omg.experiment.agent import team_of
from omg.experiment.trained import TrainedRun, package_version, read_run
from omg.modules.opponent_models import model_kind
from omg.policies.inputs import StepView
from omg.policies.module import PolicyModule, Port
from omg.policies.policy import Policy
from omg.storage.files import new_file
from omg.types import EnvSpec, Observation, OmgError, RunFailedError, user_path

FORMATS = {"onnx": ".onnx", "pt2": ".pt2"}
# The check: so many games, so many steps, and the largest difference of outputs around 1.
GAMES, STEPS, TOLERANCE = 8, 60, 1e-4
CPU = torch.device("cpu")
# Takes the tensors of `PolicyModule.inputs` and gives those of its outputs.
Runnable = Callable[[tuple[Tensor, ...]], list[Tensor]]


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written, what it takes and gives, and how well it agrees with the run."""

    path: Path
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    checked: int  # joint actions that were compared
    difference: float  # the largest, of the values or logits
    notes: tuple[str, ...] = ()


def export_agent(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    which: str | int = "last",
    format: str | None = None,
) -> Exported:
    """Write the policy of a run as one file, one greedy step of all seats: `onnx` or `pt2` (as the
    name `out` ends; empty: <run>/agent.onnx). The file is read again, plays against the run's own
    policy in its environment, and appears only if both agree."""
    run = read_run(folder, str(which))
    kind, path = _target(run, out, format)
    if kind == "onnx":
        _need_packages()
    env = make_batched(run.config.env, run.config.env_args, n_copies=GAMES)
    try:
        policy, notes = _exportable(run, env.spec)
        module = PolicyModule(policy, env.spec).eval()
        program = _traced(module, run.config)
        with new_file(path) as temporary:
            _write(program, module, temporary, kind, _about(run, module))
            checked, difference = compare(policy, env, module, _reader(temporary, kind))
    finally:
        env.close()
    return Exported(path, module.inputs, module.outputs, checked, difference, notes)


def _target(
    run: TrainedRun, out: str | os.PathLike[str] | None, format: str | None
) -> tuple[str, Path]:
    """The format and the file."""
    known = f"Choose {' or '.join(FORMATS)}"
    if format not in (None, "", *FORMATS):
        raise OmgError(f"format={format} is not known. {known}.")
    if not out:
        kind = format or "onnx"
        return kind, run.folder / f"agent{FORMATS[kind]}"
    path = user_path(out)
    ending = next((kind for kind, suffix in FORMATS.items() if path.suffix == suffix), None)
    if ending is None or format not in (None, "", ending):
        wanted = FORMATS[format] if format else " or ".join(FORMATS.values())
        raise OmgError(f"{path} should end in {wanted}. Change its name, or the format.")
    if not path.parent.is_dir():
        raise OmgError(f"{path.parent} is not a folder. Make it, or choose another.")
    return ending, path


def _need_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise OmgError(
            f"ONNX needs {', '.join(missing)}. Install it: pip install 'omg-marl[export]'; or "
            "export as .pt2, which needs torch only."
        )


def _exportable(run: TrainedRun, spec: EnvSpec) -> tuple[Policy, tuple[str, ...]]:
    """The policy on the CPU, drawing nothing at random, and what is to be said of that."""
    if model_kind(run.config).needs_foresight:
        raise OmgError(
            f"am_model={run.config.am_model} is told what the others are about to do, which only "
            "training knows: a file that acts elsewhere has nobody to ask. Export an agent that "
            "infers it, or one without a model."
        )
    mac = team_of(run, spec, CPU)
    if mac.model is None or not hasattr(mac.model, "draw"):
        return mac.policy, ()
    if run.config.subgoal_posterior == "mean":
        return mac.policy, ()
    mean = Config.model_validate({**run.config.as_dict(), "subgoal_posterior": "mean"})
    same = TeamMAC.__new__(type(mac))
    same.__init__(config=mean, spec=spec, device=CPU, lineup=mac.lineup)  # type: ignore[misc]
    for name, network in same.networks().items():
        network.load_state_dict(mac.networks()[name].state_dict())
    note = "The run samples its subgoals (subgoal_posterior=sample); the file takes their mean."
    return same.policy, (note,)


def _traced(module: PolicyModule, config: Config) -> Any:
    """The program of one step, for any number of games."""
    games = torch.export.Dim("games", min=1, max=2**20)
    example = module.example(3)
    try:
        with _silent(), torch.enable_grad():  # compiled kernels, which have no graph, need it off
            shapes = (tuple({0: games} for _ in example),)
            return torch.export.export(module, example, dynamic_shapes=shapes, strict=True)
    except OmgError:
        raise
    except Exception as error:
        parts = f"policy_model={config.policy_model} with am_model={config.am_model}"
        raise OmgError(
            f"{parts} cannot be exported: torch.export says '{_first_line(error)}'. It needs a "
            "step whose course does not depend on values, and that draws nothing at random."
        ) from error


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _about(run: TrainedRun, module: PolicyModule) -> dict[str, Any]:
    """What is written into the file beside the network."""

    def ports(found: tuple[Port, ...]) -> dict[str, Any]:
        return {p.name: {"shape": ["games", *p.shape], "about": p.about} for p in found}

    return {
        "version": package_version(),
        "algorithm": run.config.name,
        "env": run.config.env,
        "env_args": dict(run.config.env_args),
        "env_steps": run.env_steps,
        "inputs": ports(module.inputs),
        "outputs": ports(module.outputs),
    }


def _write(
    program: Any, module: PolicyModule, path: Path, kind: str, about: Mapping[str, Any]
) -> None:
    text = json.dumps(about, default=str)
    if kind == "pt2":
        with path.open("wb") as file:
            torch.export.save(program, file, extra_files={"omg.json": text})
        return
    with _silent():
        made = torch.onnx.export(
            program,
            module.example(3),
            dynamo=True,
            input_names=[port.name for port in module.inputs],
            output_names=[port.name for port in module.outputs],
            verbose=False,
        )
    assert made is not None
    _name_games(made.model)
    made.model.metadata_props["omg"] = text
    made.save(str(path), external_data=False)


def _name_games(model: Any) -> None:
    """Call the free axis `games`; torch numbers it (s13)."""
    symbol = str(model.graph.inputs[0].shape[0])
    values = [*model.graph.inputs, *(out for node in model.graph for out in node.outputs)]
    for value in values:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and (name := str(size)) != "None":
                value.shape[axis] = re.sub(rf"\b{symbol}\b", "games", name)


def _reader(path: Path, kind: str) -> Runnable:
    """The file, read again."""
    if kind == "pt2":
        with path.open("rb") as file:
            module = torch.export.load(file).module()
        return lambda given: list(module(*given))
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(given: tuple[Tensor, ...]) -> list[Tensor]:
        fed = {name: value.numpy() for name, value in zip(names, given, strict=True)}
        return [torch.from_numpy(np.asarray(value)) for value in session.run(None, fed)]

    return run


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what the exporters say about packages they do not find and their own future."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# --- the check -----------------------------------------------------------------------------------


def compare(policy: Policy, env: Any, module: PolicyModule, read: Runnable) -> tuple[int, float]:
    """Play the run's policy as it acts in training (its kernels included) beside a file that was
    read again; how many joint actions were compared, and the largest difference of outputs."""
    spec: EnvSpec = env.spec
    shape = (GAMES, spec.n_agents)
    seats = torch.arange(spec.n_agents).expand(shape)
    hidden = torch.zeros(*shape, policy.network.carry_dim)
    model = torch.zeros(*shape, policy.model_carry_dim)
    carry = torch.zeros(*shape, hidden.shape[-1] + model.shape[-1])
    last = torch.full(shape, -1, dtype=torch.int64)
    shown, largest = env.reset(0), 0.0
    for _ in range(STEPS):
        view = _view(shown, last, spec)
        with torch.inference_mode():
            feature = None
            if policy.model is not None:
                generator = torch.Generator()
                feature, inferred = policy.infer(view, seats, model.flatten(1), generator)
                model = inferred.carry.view(*shape, -1)
            wanted, hidden = policy.step(view, hidden, None, feature)
        with torch.no_grad():
            actions, found, *after = read(_fed(module, view, carry))
        carry = after[0] if after else carry
        last = wanted.masked_fill(~view.avail, -torch.inf).argmax(-1)
        largest = max(largest, float((wanted - found).abs().max()))
        _refuse_difference(largest, float(wanted.abs().max()), (actions, last), wanted)
        shown = env.step(last.numpy())
        ended = torch.from_numpy(shown.terminated | shown.truncated)
        hidden, model, carry = (
            x.masked_fill(ended.view(-1, 1, 1), 0) for x in (hidden, model, carry)
        )
        last = last.masked_fill(ended.unsqueeze(1), -1)
    return GAMES * STEPS, largest


def _refuse_difference(
    largest: float, size: float, actions: tuple[Tensor, Tensor], values: Tensor
) -> None:
    """Of outputs, or of actions that are not equally good."""
    allowed = TOLERANCE * max(1.0, size)
    theirs, ours = (values.gather(-1, chosen.unsqueeze(-1)) for chosen in actions)
    if largest > allowed or bool((ours - theirs > allowed).any()):
        raise RunFailedError(
            f"The file does not act as the run does: outputs differ by up to {largest:.2g}. "
            "Nothing was written. Report this with the versions that 'omg doctor' prints."
        )


def _view(shown: Any, last: Tensor, spec: EnvSpec) -> StepView:
    seen = Observation(shown.obs, shown.state, shown.avail, shown.alive)
    alive = None
    if spec.leavers:
        alive = torch.ones(last.shape, dtype=torch.bool)
        alive = alive if seen.alive is None else torch.from_numpy(seen.alive.copy())
    return StepView(
        obs=torch.from_numpy(np.array(seen.obs, np.float32)),
        state=torch.from_numpy(np.array(seen.state, np.float32)),
        avail=torch.from_numpy(seen.avail.copy()),
        last_actions=last,
        alive=alive,
    )


def _fed(module: PolicyModule, view: StepView, carry: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        carry if port.name == "carry" else getattr(view, port.name) for port in module.inputs
    )
