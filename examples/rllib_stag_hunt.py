"""Four hunters in RLlib, each modelling the others by MOA and OMG.

    pip install 'omg-marl[rllib]'
    python examples/rllib_stag_hunt.py                     # PPO, under ten minutes on two cores
    python examples/rllib_stag_hunt.py --algorithm=dqn

First a prior over subgoals is pre-trained with our own batched environment, as always. Then RLlib's
PPO or DQN trains the hunters: its runners play, its learner learns the policies, and after every
update the opponent models learn from the episodes that were just played. At the end the policy is
written as a run of ours and added to a pool, where it can be somebody's opponent.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import ray

import omg
from omg.integrations.rllib import dqn_config, export_policy, ppo_config

CONFIGS = {"ppo": (ppo_config, "ppo_moa_omg"), "dqn": (dqn_config, "d3qn_moa_omg")}
SHOWN = ("moa_accuracy", "moa_loss", "am_kl", "am_recon", "am_episodes", "am_updates")


def prior_of(alg: str, results: Path, steps: int) -> str:
    """A prior over subgoals from the hunters' own random play."""
    run = omg.train(
        alg,
        "stag_hunt",
        learner="am_learner",
        t_max=steps,
        prior_min_accuracy=0.5,
        local_results_path=str(results),
        run_name=f"prior of {alg}",
        use_sacred=False,
        use_tensorboard=False,
        quiet=True,
    )
    print(f"prior: decodes {run.metrics['prior_accuracy']:.0%} of the others' places", flush=True)
    return str(run.folder)


def hunters(algorithm: str, prior: str, seed: int, runners: int) -> Any:
    """RLlib's configuration: our policies, models and game; the rest is RLlib's."""
    make, alg = CONFIGS[algorithm]
    config = make(
        alg,
        "stag_hunt",
        init_param_path=prior,
        window=10,
        seed=seed,
        batch_size=64 if algorithm == "ppo" else 16,
        buffer_size=512,
        updates_per_episode=0.2,
        subgoal_epsilon_start=0.0,
        epsilon_anneal_time=10_000,
        lr=0.001,
    )
    config.env_runners(num_env_runners=runners, num_envs_per_env_runner=8)
    if algorithm == "dqn":
        config.reporting(min_sample_timesteps_per_iteration=1000)
    return config


def report(number: int, results: dict[str, Any], seconds: float) -> None:
    """One line per iteration."""
    played, learned = results["env_runners"], results["learners"]["shared"]
    steps = int(played["num_env_steps_sampled_lifetime"])
    each = sorted(played.get("agent_episode_returns_mean", {}).items())
    returns = " ".join(f"{value:5.2f}" for _, value in each)
    models = "  ".join(f"{key} {float(learned[key]):.3g}" for key in SHOWN if key in learned)
    print(
        f"{number:3d}  {seconds:4.0f} s  {steps:6d} steps  returns {returns}  {models}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--algorithm", choices=CONFIGS, default="ppo")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training in RLlib")
    parser.add_argument("--prior", default="", help="a run of am_learner; else one is made")
    parser.add_argument("--prior-steps", type=int, default=60_000)
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("results/rllib_stag_hunt"))
    given = parser.parse_args()
    alg = CONFIGS[given.algorithm][1]
    prior = given.prior or prior_of(alg, given.results, given.prior_steps)
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    algorithm = hunters(given.algorithm, prior, given.seed, given.runners).build_algo()
    began, number, results = time.monotonic(), 0, {}
    while time.monotonic() - began < 60 * given.minutes:
        results = algorithm.train()
        number += 1
        report(number, results, time.monotonic() - began)
    last = results["learners"]["shared"]
    print(f"MOA's accuracy: {float(last.get('moa_accuracy', float('nan'))):.0%} (7 actions)")
    print(
        f"mean return of a hunter: {float(results['env_runners']['episode_return_mean']) / 4:.2f}"
    )
    run = export_policy(
        algorithm, "shared", given.results / f"rllib_{given.algorithm}_{time.time():.0f}"
    )
    pool = omg.Pool.open_or_new(given.results / "pool")
    print(f"in the pool {pool.path}: {pool.add_run(run)[0].id}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
