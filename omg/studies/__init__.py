"""All stages of a study from one file: opponents, pool, priors, agents, cross-play, report.

Nothing here imports torch before the pool is built, so looking and skipping are quick.
"""
