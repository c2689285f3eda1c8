"""What other frameworks call our keys, so that a wrong name is answered with the right one."""

from __future__ import annotations

# Our key (or option): its names in EPyMARL, RLlib, Stable-Baselines3, CleanRL and JaxMARL.
_NAMES = {
    "lr": "learning_rate alpha lr_rate actor_lr policy_lr step_size lr_actor lr_policy",
    "critic_lr": "lr_critic critic_learning_rate value_lr vf_lr",
    "gamma": "discount discount_factor discount_rate",
    "t_max": "total_timesteps total_steps max_steps num_env_steps max_timesteps n_timesteps "
    "t_total timesteps total_env_steps max_n_frames num_steps n_steps env_steps training_steps "
    "steps",
    "batch_size_run": "num_envs n_envs n_rollout_threads n_parallel_envs parallel_envs "
    "num_envs_per_worker num_envs_per_env_runner",
    "n_workers": "num_workers num_env_runners workers n_processes num_cpus",
    "rnn_hidden_dim": "hidden_dim hidden_size hidden_units n_hidden rnn_hidden_size gru_hidden_dim "
    "hidden_state_size lstm_cell_size",
    "mlp_hidden_dims": "net_arch fcnet_hiddens hidden_layers layers hidden_sizes",
    "buffer_size": "buffer_capacity replay_size memory_size replay_buffer_size replay_capacity "
    "buffer_length",
    "batch_size": "minibatch_size train_batch_size sample_batch_size batch train_batch",
    "epsilon_start": "eps_start epsilon initial_epsilon start_epsilon exploration_initial_eps",
    "epsilon_finish": "eps_end epsilon_end final_epsilon end_epsilon eps_finish epsilon_min "
    "exploration_final_eps",
    "epsilon_anneal_time": "eps_decay epsilon_decay_steps exploration_steps epsilon_timesteps "
    "eps_decay_steps exploration_fraction anneal_time",
    "grad_norm_clip": "max_grad_norm grad_clip clip_grad_norm grad_norm gradient_clip clip_grad",
    "target_update_interval": "target_update target_update_freq target_network_update_freq "
    "target_network_frequency update_target_every target_update_frequency",
    "target_update_tau": "tau polyak polyak_tau soft_update_tau",
    "test_interval": "eval_interval evaluation_interval eval_freq eval_every evaluate_every",
    "test_nepisode": "n_eval_episodes eval_episodes num_eval_episodes evaluation_duration "
    "test_episodes n_test_episodes",
    "save_model_interval": "save_interval checkpoint_interval checkpoint_freq save_freq save_every",
    "eps_clip": "clip_range clip_param clip_eps clip_coef clip_epsilon ppo_clip",
    "entropy_coef": "ent_coef entropy_coeff entropy_weight entropy_bonus",
    "value_coef": "vf_coef vf_loss_coeff value_loss_coef critic_coef",
    "gae_lambda": "lambda_ gae_lam lmbda",
    "ppo_epochs": "n_epochs num_epochs epochs num_sgd_iter update_epochs ppo_epoch",
    "ppo_minibatches": "num_minibatches num_mini_batch n_minibatches",
    "optimizer": "optimiser optim opt",
    "am_model": "opponent_model agent_model",
    "opponent_pool": "pool opponents population",
    "use_cuda": "cuda gpu use_gpu",
    "torch_threads": "threads num_threads n_threads",
    "local_results_path": "save_dir log_dir output_dir results_dir out_dir save_path logdir outdir",
    "run_name": "exp_name experiment_name run_id",
    "use_wandb": "wandb track",
    "wandb_project": "wandb_project_name project project_name",
    "use_tensorboard": "tensorboard use_tb",
    "use_sacred": "sacred",
    "wandb_entity": "wandb_team",
    "standardise_values": "standardise_returns",
    "standardise_rewards": "reward_standardisation normalise_rewards normalize_rewards",
    "test_greedy": "evaluation_epsilon deterministic_eval",
    "policy_model": "use_rnn network model architecture policy",
    "seed": "env_seed random_seed torch_seed rng_seed",
    "checkpoint_path": "load_path restore restore_path model_path load_dir pretrained checkpoint",
    "common_reward": "shared_reward team_reward share_reward cooperative",
    "--config": "algo algorithm alg algos",
    "--env-config": "env_name environment env_id game task scenario",
}
OURS = {name: ours for ours, names in _NAMES.items() for name in names.split()}
# Names of things that no key here sets, and what to do instead.
_ADVICE = {
    "n_agents num_agents n_players num_players": "The environment says how many agents there are; "
    "'omg envs info <env>' lists its arguments (env_args.players=3, env_args.map_name=3m …)",
    "map_name scenario_name env_key": "It is an argument of the environment: "
    "env_args.map_name=… or env_args.key=…",
    "episode_limit time_limit max_episode_steps max_cycles horizon": "It is an argument of the "
    "environment, e.g. env_args.max_episode_steps=50; 'omg envs info <env>' lists them",
    "target_update_interval_or_tau": "Use target_update_interval (episodes), or target_update_tau "
    "(0 to 1) for soft updates",
    "add_value_last_step": "Episodes that were cut off are bootstrapped, those that ended are not",
    "obs_individual_obs": "What a critic reads follows from the key critic",
    "seeds jobs out redo": "Several runs at a time: omg train --seeds=1:4 --jobs=2 --out=<folder>",
    "hypergroup": "Use label to tell runs apart",
    "render": "Use save_replay, or 'omg envs play <env>'",
    "lr_decay anneal_lr lr_schedule": "lr_finish is the share of lr that is left at t_max, in a "
    "straight line",
}
ADVICE = {name: advice for names, advice in _ADVICE.items() for name in names.split()}


def meant(name: str) -> str:
    """`, did you mean 'x'?` where another framework has the name, else an empty string."""
    plain = name.lower().replace("-", "_")
    ours = OURS.get(plain) or OURS.get(plain.strip("_"))
    return f", did you mean '{ours}'?" if ours else ""
