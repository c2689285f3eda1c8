"""Judging policies: tests, replays, pictures."""
