"""Environments written for other interfaces: PettingZoo, Gymnasium, PyMARL."""
