"""Ray (`pip install 'omg-marl[ray]'`): sweeps, studies and rollouts on one machine or a cluster.

Importing this is cheap; `cluster.py` imports Ray when it is needed. See docs/scaling.md.
"""
