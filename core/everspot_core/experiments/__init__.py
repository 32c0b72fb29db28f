"""Experiments of several jobs: sweeps, and comparisons of number formats."""
