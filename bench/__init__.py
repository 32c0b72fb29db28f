"""Benchmarks: every claim of speed, printed beside its limit."""
