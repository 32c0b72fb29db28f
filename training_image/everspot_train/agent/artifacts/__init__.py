"""Judges and copies what a program leaves in its folder `checkpoints`."""
