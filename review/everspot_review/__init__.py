"""Judges a change before it is merged: what it does to each environment, what it costs, which rules it breaks."""
