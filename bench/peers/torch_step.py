"""One training step of the tutorial's seq2seq Transformer in PyTorch: the same work as bench/step, from its weights.

Prints a JSON object with the loss before the first step and without dropout, then the milliseconds of each step asked
for on standard input ("run N" lines), so that a driver can interleave it with other programs.
"""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

import peer
import torch_training
from torch_training import Attention, ids


class Layer(nn.Module):
    def __init__(self, c, decoder, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.self_attn = Attention(c.d_model, c.heads, c.dropout)
        self.cross = Attention(c.d_model, c.heads, c.dropout) if decoder else None
        self.linear1, self.linear2 = nn.Linear(c.d_model, c.d_ff), nn.Linear(c.d_ff, c.d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(c.d_model) for _ in range(3 if decoder else 2))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x, memory=None, mask=None):  # the mask is that of the source
        if self.cross is None:
            x = self.residual(0, x, lambda y: self.self_attn(y, mask=mask))
        else:
            x = self.residual(0, x, lambda y: self.self_attn(y, causal=True))
            x = self.residual(1, x, lambda y: self.cross(y, memory, mask=mask))
        return self.residual(-1, x, lambda y: self.linear2(self.drop(F.relu(self.linear1(y)))))

    def residual(self, i, x, branch):
        if self.pre_norm:
            return x + self.drop(branch(self.norms[i](x)))
        return self.norms[i](x + self.drop(branch(x)))


class Model(nn.Module):
    """Post-norm, or pre-norm with a norm after each stack."""

    def __init__(self, c, pre_norm=False):
        super().__init__()
        self.d_model = c.d_model
        self.src, self.tgt = nn.Embedding(c.vocab, c.d_model), nn.Embedding(c.vocab, c.d_model)
        self.encoder = nn.ModuleList(Layer(c, False, pre_norm) for _ in range(c.encoder_layers))
        self.decoder = nn.ModuleList(Layer(c, True, pre_norm) for _ in range(c.decoder_layers))
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(c.d_model) if pre_norm else nn.Identity() for _ in range(2))
        self.out = nn.Linear(c.d_model, c.vocab)
        self.drop = nn.Dropout(c.dropout)
        position = torch.arange(512).unsqueeze(1)
        rate = torch.exp(torch.arange(0, c.d_model, 2) * (-math.log(10000.0) / c.d_model))
        table = torch.zeros(512, c.d_model)
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("table", table)

    def embed(self, table, ids):
        return self.drop(table(ids) * math.sqrt(self.d_model) + self.table[: ids.shape[1]])

    def forward(self, source, target, mask=None):
        x = self.embed(self.src, source)
        for layer in self.encoder:
            x = layer(x, mask=mask)
        x = self.encoder_norm(x)
        y = self.embed(self.tgt, target)
        for layer in self.decoder:
            y = layer(y, x, mask)
        return self.out(self.decoder_norm(y))


RENAMED = {"encoder.layers": "encoder", "decoder.layers": "decoder", "encoder.norm": "encoder_norm",
           "decoder.norm": "decoder_norm", "multihead_attn": "cross", "norm1": "norms.0", "norm2": "norms.1", "norm3": "norms.2",
           "src_embedding": "src", "tgt_embedding": "tgt", "generator": "out"}


SIZES = dict(peer.MODEL, batch=32, source=12, target=21)


def main():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, SIZES)
    parser.add_argument("--dropout", type=float, default=0.1)
    c = torch_training.parse(parser)
    model = Model(c)
    torch_training.load(model, c.weights, RENAMED)
    source, target, labels = (ids(c.batch, length, c.vocab, seed)
                              for seed, length in enumerate((c.source, c.target, c.target), 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    torch_training.take_turns(c, model, optimizer, (source, target), labels, warm_up=8)


if __name__ == "__main__":
    main()
