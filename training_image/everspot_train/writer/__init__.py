"""The writer: a process of the trainer that copies checkpoints between shared memory and the store.

It does not import torch, so that it starts in half a second and needs little memory.
"""
