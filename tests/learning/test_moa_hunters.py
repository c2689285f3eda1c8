"""MOA among scripted hunters: what they do is predicted, what they want is believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.envs.registry import make_batched
from omg.experiment.output import read_metrics
from omg.modules.opponent_models.moa import MoaModel
from omg.opponents.pool import OpponentPool
from omg.runners.assembly import make_rollout
from omg.runners.rollout import play_episodes
from omg.storage.models import load_networks

pytestmark = pytest.mark.slow
GAME = ["with", "env_args.size=4", "env_args.players=3", "env_args.hares=2"]
GAME += ["env_args.max_episode_steps=16"]
STAG = 0


def pool_of(path: Path, *names: str) -> Path:
    pool = OpponentPool.create(path)
    for name in names:
        pool.add_script(name, env="stag_hunt")
    return path


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of hunters who each keep their goal, pre-trained from their games."""
    root = tmp_path_factory.mktemp("moa")
    pool = pool_of(root / "pool", "stag", "hare_1", "hare_2")
    words = ["--config=d3qn_moa", "--learner=am_learner", "--env-config=stag_hunt", "--quiet"]
    words += [f"--opponent_pool={pool}", "--t_max=80000", "--moa_update_time=8", "--seed=1"]
    words += ["--use_tensorboard=False", "--use_sacred=False", "--test_interval=1000000"]
    words += [f"--local_results_path={root}", "--run_name=pre", "--learner_log_interval=10000"]
    return Path(train([*words, *GAME]).folder)


def beliefs(run: Path, folder: Path, script: str, *more: str) -> tuple[np.ndarray, ...]:
    """Beliefs [E, T, goals] about the next player beside two hunters of one script, whether it is
    there [E, T], and what it reaches next [E, T], without what was counted before."""
    pool = pool_of(folder / "pool", script)
    words = ["--config=d3qn_moa", "--env-config=stag_hunt", f"--opponent_pool={pool}"]
    config = load_command_line([*words, *GAME, *more]).config
    env = make_batched("stag_hunt", config.env_args, n_copies=32)
    cpu = torch.device("cpu")
    mac = MultiModuleMAC(config=config, spec=env.spec, device=cpu)
    assert isinstance(mac.model, MoaModel)
    files = {f"d3qn_moa/{name}": part for name, part in mac.model.files().items()}
    load_networks(run / "models" / "last", files)
    mac.model.counts.seats.zero_()
    mac.model.counts.players.zero_()
    rollout = make_rollout(config, env=env, mac=mac.recording(), stream="test", device=cpu)
    parts = []
    for finished in play_episodes(rollout, 96, round_number=0, env_steps=0):
        played = mac.trajectories(finished.episodes)
        rows = mac.model_rows(played)
        assert rows.others_alive is not None
        assert rows.others_goal is not None
        belief = played.pack("am_belief").view(-1, 2, 3)[:, 0]
        last = (played.packing.time == played.packing.length - 1).unsqueeze(1)
        told = [belief, rows.others_alive[:, :1] & ~last, rows.others_goal[:, :1]]
        limit = env.spec.episode_limit + 1
        for value in zip(*(played.packing.unpack(t) for t in told), strict=True):
            padded = [torch.nn.functional.pad(v, (0, 0, 0, limit - len(v))) for v in value]
            parts.append([v.numpy() for v in padded])
    belief, there, goal = (np.stack(column) for column in zip(*parts, strict=True))
    return belief, there[..., 0].astype(bool), goal[..., 0]


def test_what_scripted_hunters_do_is_predicted(taught: Path) -> None:
    found = [r["moa_accuracy"] for r in read_metrics(taught / "metrics.jsonl") if "moa_loss" in r]
    assert found[-1] > 0.8 > 0.65 > found[0]


@pytest.mark.parametrize(("script", "goal"), [("stag", 0), ("hare_1", 1), ("hare_2", 2)])
def test_the_belief_converges_to_the_goal_of_a_hunter(
    taught: Path, tmp_path: Path, script: str, goal: int
) -> None:
    belief, there, reached = beliefs(taught, tmp_path, script)
    sure = there & (reached == goal)
    first = belief[:, 0][sure[:, 0]][:, goal].mean()
    steps = sure.sum(1)
    walked = steps >= 4  # who stands on its goal from the start tells little
    last = belief[np.flatnonzero(walked), steps[walked] - 1, goal].mean()
    assert first == pytest.approx(1 / 3, abs=1e-5)
    assert last > 0.75


def test_the_belief_follows_a_hunter_that_changes_its_mind(taught: Path, tmp_path: Path) -> None:
    """It goes for the stag until step 8, in vain because that takes one more, then for a hare."""
    belief, there, _ = beliefs(taught, tmp_path, "impatient", "env_args.stag_hunters=3")
    stayed = there[:, 11]
    assert stayed.sum() >= 5
    before, after = belief[stayed, 7, STAG].mean(), belief[stayed, 11, STAG].mean()
    assert before > 0.8
    assert after < 0.4
