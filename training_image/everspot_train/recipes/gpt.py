"""A small decoder-only transformer over bytes."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

BYTES = 256
"""The size of the vocabulary, all values of a byte."""
_DEVIATION = 0.02  # of initial weights, as in GPT-2


class GptBlock(nn.Module):
    """Causal attention and a feed-forward network, each behind a LayerNorm and around a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self._heads, self._dropout = heads, dropout
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output for a sequence of shape (n, length, width)."""
        n, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(n, length, 3, self._heads, width // self._heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        dropout = self._dropout if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        x = x + self.dropout(self.projection(mixed.transpose(1, 2).reshape(n, length, width)))
        result: torch.Tensor = x + self.dropout(self.feed(self.feed_norm(x)))
        return result


class Gpt(nn.Module):
    """Embeddings of bytes and positions, blocks, and a linear layer to the next byte.

    Args:
        context: the longest sequence.
        width: of the embeddings; a multiple of `heads`.
        layers: the number of blocks.
        dropout: the fraction of features left out while training.
    """

    def __init__(self, context: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.answer = nn.LayerNorm(width), nn.Linear(width, BYTES)
        self.apply(_initialize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next byte at each position of sequences of shape (n, length)."""
        x = self.bytes(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.answer(self.norm(x))
        return logits


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
