"""A model for Hugging Face's Trainer."""

import torch
from torch import nn


class TrainerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}
