"""Everspot's decisions and its data models: jobs, catalogue, prices, allocation, schedule and cost.

Everything here is pure: no I/O, no clock and no randomness unless they are passed in.
"""
