"""Measures a job's utilization of its machine by the kernel and the GPUs, and writes it to the store."""
