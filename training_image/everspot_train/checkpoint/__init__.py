"""The format of checkpoints: JSON and tensors, planned by `torch.distributed.checkpoint`, and read without pickle."""
