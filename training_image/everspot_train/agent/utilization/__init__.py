"""What a job uses of its machine: read from the kernel and the GPUs, and kept in the store."""
