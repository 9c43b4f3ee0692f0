"""One training step of a decoder-only Transformer in PyTorch: the same work as bench/gpt, from its weights."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

import peer
import torch_training
from torch_training import Attention, ids


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = Attention(c.d_model, c.heads, 0.0)
        self.linear1, self.linear2 = nn.Linear(c.d_model, 4 * c.d_model), nn.Linear(4 * c.d_model, c.d_model)
        self.norm1, self.norm2 = nn.LayerNorm(c.d_model), nn.LayerNorm(c.d_model)

    def forward(self, x):
        x = x + self.self_attn(self.norm1(x), causal=True)
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embedding, self.position = nn.Embedding(c.vocab, c.d_model), nn.Embedding(c.context, c.d_model)
        self.layers = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.d_model)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight[:tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embedding.weight)


def main():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, peer.GPT)
    c = torch_training.parse(parser)
    model = Gpt(c)
    torch_training.load(model, c.weights, {})
    tokens = ids(c.batch, c.length, c.vocab, 1)
    labels = tokens.flatten().roll(-1).view_as(tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch_training.take_turns(c, model, optimizer, (tokens,), labels, warm_up=3)


if __name__ == "__main__":
    main()
