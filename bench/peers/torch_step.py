"""One training step of the tutorial's seq2seq Transformer in PyTorch: the same work as bench/step, from its weights.

Prints a JSON object with the loss before the first step and without dropout, then the milliseconds of each step asked
for on standard input ("run N" lines), so that a driver can interleave it with other programs.
"""
import argparse
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

import peer

PAD = 0


class Attention(nn.Module):
    def __init__(self, d_model, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory=None, causal=False):
        d = x.shape[-1]
        if memory is None:
            q, k, v = self.in_proj(x).chunk(3, -1)
        else:
            w, b = self.in_proj.weight, self.in_proj.bias
            q = F.linear(x, w[:d], b[:d])
            k, v = F.linear(memory, w[d:], b[d:]).chunk(2, -1)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v), dropout_p=p, is_causal=causal)
        return self.out_proj(y.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, c, decoder):
        super().__init__()
        self.self_attn = Attention(c.d_model, c.heads, c.dropout)
        self.cross = Attention(c.d_model, c.heads, c.dropout) if decoder else None
        self.linear1, self.linear2 = nn.Linear(c.d_model, c.d_ff), nn.Linear(c.d_ff, c.d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(c.d_model) for _ in range(3 if decoder else 2))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x, memory=None):
        x = self.norms[0](x + self.drop(self.self_attn(x, causal=self.cross is not None)))
        if self.cross is not None:
            x = self.norms[1](x + self.drop(self.cross(x, memory)))
        return self.norms[-1](x + self.drop(self.linear2(self.drop(F.relu(self.linear1(x))))))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.d_model = c.d_model
        self.src, self.tgt = nn.Embedding(c.vocab, c.d_model), nn.Embedding(c.vocab, c.d_model)
        self.encoder = nn.ModuleList(Layer(c, False) for _ in range(c.encoder_layers))
        self.decoder = nn.ModuleList(Layer(c, True) for _ in range(c.decoder_layers))
        self.out = nn.Linear(c.d_model, c.vocab)
        self.drop = nn.Dropout(c.dropout)
        position = torch.arange(512).unsqueeze(1)
        rate = torch.exp(torch.arange(0, c.d_model, 2) * (-math.log(10000.0) / c.d_model))
        table = torch.zeros(512, c.d_model)
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("table", table)

    def embed(self, table, ids):
        return self.drop(table(ids) * math.sqrt(self.d_model) + self.table[: ids.shape[1]])

    def forward(self, source, target):
        x = self.embed(self.src, source)
        for layer in self.encoder:
            x = layer(x)
        y = self.embed(self.tgt, target)
        for layer in self.decoder:
            y = layer(y, x)
        return self.out(y)


def ids(rows, length, vocab, seed):
    return torch.tensor(peer.ids(rows, length, vocab, seed))


def load(model, path):
    """Takes the weights that bench/step wrote; every one of them, and no other is there."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    from heed_torch import load_safetensors

    renamed = {"encoder.layers": "encoder", "decoder.layers": "decoder", "in_proj_": "in_proj.", "multihead_attn": "cross",
               "norm1": "norms.0", "norm2": "norms.1", "norm3": "norms.2", "src_embedding": "src", "tgt_embedding": "tgt",
               "generator": "out"}
    state = {"table": model.table}
    for name, value in load_safetensors(path).items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        state[name] = value
    model.load_state_dict(state)


SIZES = dict(peer.MODEL, batch=32, source=12, target=21)


def main():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, dict(SIZES, threads=2))
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights", required=True, help="the first weights, written by bench/step")
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    torch.manual_seed(1)
    model = Model(c)
    load(model, c.weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source = ids(c.batch, c.source, c.vocab, 1)
    target, labels = ids(c.batch, c.target, c.vocab, 2), ids(c.batch, c.target, c.vocab, 3)
    forward = torch.compile(model) if c.compile else model

    def loss_of():
        with torch.autocast("cpu", torch.bfloat16, enabled=c.dtype == "bf16"):
            logits = forward(source, target)
        return F.cross_entropy(logits.float().reshape(-1, c.vocab), labels.reshape(-1), ignore_index=PAD)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss.item()

    with torch.no_grad():
        model.eval()
        loss = loss_of().item()
        model.train()
    parameters = sum(p.numel() for p in model.parameters())
    for _ in range(8):
        step()
    name = "PyTorch " + torch.__version__ + (" compiled" if c.compile else " eager")
    peer.take_turns(dict(name=name, parameters=parameters, loss=loss), step)


if __name__ == "__main__":
    main()
