"""Finds complete checkpoints in a program's folder `checkpoints`, and copies them."""
