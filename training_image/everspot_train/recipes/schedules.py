"""The schedule of the learning rate that the recipes use."""

import torch


def one_cycle(optimizer: torch.optim.Optimizer, peak: float, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule that rises to the peak over a quarter of the steps, and then falls to nearly zero."""
    rise = 0.3 if steps == 4 else 0.25  # torch divides by the length of the rise, which would be 0 for a quarter of 4
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak, total_steps=steps, pct_start=rise, div_factor=10, final_div_factor=100
    )
