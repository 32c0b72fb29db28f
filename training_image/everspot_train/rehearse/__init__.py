"""Rehearses a job on this machine with the real agent and trainer: undisturbed, and interrupted at several places."""
