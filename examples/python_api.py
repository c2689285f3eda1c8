"""Train a team, load it, and play an episode in a loop of one's own. From this folder:

python python_api.py
"""

import omg

run = omg.train("qmix_quick", "foraging", t_max=20_000, env_args={"key": "Foraging-5x5-2p-1f-v3"})
agent, env = run.agent(), run.make_env()
view, total, done = env.reset(0), 0.0, False
while not done:
    view = env.step(agent.act(view))
    total += view.reward.sum()  # each agent's own; where all share one reward: view.reward[0, 0]
    done = view.terminated[0] or view.truncated[0]
print(f"return {total:.2f}")
