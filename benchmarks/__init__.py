"""Ratios to the reference points, each measured in one run: `make bench`."""
