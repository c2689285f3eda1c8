"""Odd command lines, damaged files, kills, faulty environments and low limits: `make fuzz`.

Every case follows from the seed and its own ID, so that `--seed N --case ID` repeats it.
"""
