"""Rehearses a job on this machine: undisturbed, and interrupted at several places, with the real agent and trainer."""
