"""Single operations with their gradients in PyTorch, as a program calls them: the same work as bench/kernels."""
import argparse
import contextlib
import functools

import torch
from torch.nn import functional as F

import peer

PERIOD = 2003
DROPOUT = 0.1


def filled(shape, seed, dtype):
    """Element i is (7 i² + 11 i + 97 seed) mod 2003, spread over -2 … 2, as in bench/kernel_cases.cpp."""
    i = torch.arange(PERIOD, dtype=torch.int64)
    table = ((i * i * 7 + i * 11 + seed * 97) % PERIOD).double() * 4 / PERIOD - 2
    count = torch.Size(shape).numel()
    return table.float().repeat(count // PERIOD + 1)[:count].reshape(shape).to(dtype)


MAPS = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softmax": lambda x: F.softmax(x, -1),
    "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "erf": torch.erf, "sin": torch.sin, "cube": lambda x: x.pow(3), "clamp": lambda x: x.clamp(-1, 1),
    "power": lambda x: x.pow(2.5), "masked": lambda x: x.masked_fill(x > x[:1], 0), "topk": lambda x: x.topk(10, 1).values,
    "flip": lambda x: x.flip(1), "transpose": lambda x: x.t().contiguous(), "cumulative_sum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1).values, "sum_rows": lambda x: x.sum(1), "sum_columns": lambda x: x.sum(0),
    "max_rows": lambda x: x.amax(1), "log_sum_exp": lambda x: torch.logsumexp(x, 1), "variance": lambda x: x.var(1)}

# Each program draws other numbers, which are not to be compared.
RANDOM = {"rand": torch.rand, "randn": torch.randn, "randint": lambda s, dtype: torch.randint(0, 1000, s)}


def sampled(x):
    flat, most = x.detach().float().flatten(), 64
    n = flat.numel()
    return [float(v) for v in (flat if n <= most else flat[[j * (n - 1) // (most - 1) for j in range(most)]])]


def attention(s, dtype, causal):
    """Sequences x length x heads x width: columns of matrices of one row a token, as in a model."""
    def heads(x):
        return x.unflatten(0, (s[0], s[1])).unflatten(-1, (s[2], s[3])).transpose(1, 2)

    qkv = [filled((s[0] * s[1], s[2] * s[3]), seed, dtype) for seed in (1, 2, 3)]

    def call(rate):
        y = F.scaled_dot_product_attention(*(heads(x) for x in qkv), is_causal=causal)
        return y.transpose(1, 2).flatten(-2).flatten(0, 1)

    return qkv, call


def operation(name, s, dtype):
    """The inputs that get gradients, and the call, which takes the rate of dropout."""
    def matrix(seed):
        return filled((s[0], s[1]), seed, dtype)

    def row(seed):
        return filled((s[1],), seed, dtype)

    if name == "layer_norm":
        x, weight, bias = matrix(1), row(2), row(3)
        return [x, weight, bias], lambda rate: F.layer_norm(x, (s[1],), weight, bias)
    if name == "residual_layer_norm":
        residual, x, weight, bias = matrix(1), matrix(2), row(3), row(4)
        return [residual, x, weight, bias], lambda rate: F.layer_norm(
            residual + F.dropout(x, rate), (s[1],), weight, bias)
    if name in RANDOM:
        return [], lambda rate: RANDOM[name](s, dtype=dtype)
    if name in ("attention", "causal_attention"):
        return attention(s, dtype, name == "causal_attention")
    x = matrix(1)
    if name in ("linear", "product"):
        weight = filled((s[2], s[1]), 2, dtype)
        return [x, weight], lambda rate: F.linear(x, weight)
    if name == "cross_entropy":
        targets = torch.arange(s[0]) * 7 % s[1]
        return [x], lambda rate: F.cross_entropy(x, targets)
    if name in ("add", "multiply"):
        y, pair = matrix(2), dict(add=torch.add, multiply=torch.mul)[name]
        return [x, y], lambda rate: pair(x, y)
    if name in ("log", "sqrt", "power"):
        x = x.abs() + 0.5
    return [x], lambda rate: MAPS[name](x)


class Kernel:
    def __init__(self, name, dtype):
        op, direction, shape = name.split("/")
        sizes = [int(size) for size in shape.split("x")]
        self.random = op in RANDOM
        self.recorded = op != "cross_entropy" or direction == "both"
        if op == "copy":
            source = filled(sizes, 1, dtype)
            target = torch.zeros_like(source)
            self.inputs, self.call = [], lambda rate: target.copy_(source)
        else:
            self.inputs, self.call = operation(op, sizes, dtype)
        for x in self.inputs:
            x.requires_grad_(self.recorded)
        self.run = dict(forward=self.forward, backward=self.backward, both=self.both)[direction]
        if direction == "backward":
            self.y = self.call(DROPOUT)
            self.gy = filled(self.y.shape, 5, dtype)

    def forward(self):
        with contextlib.nullcontext() if self.recorded else torch.no_grad():
            return self.call(DROPOUT)

    def gradients(self, y, gy, retain):
        for x in self.inputs:
            x.grad = None
        y.backward(gy, retain_graph=retain)

    def backward(self):
        self.gradients(self.y, self.gy, True)

    def both(self):
        self.gradients(self.call(DROPOUT), None, False)

    def values(self):
        if self.random:
            return []
        y = self.call(0.0)
        if self.run == self.forward:
            return [sampled(y)]
        self.gradients(y, self.gy if self.run == self.backward else None, False)
        return [sampled(x.grad) for x in self.inputs]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--cases")
    parser.add_argument("--tiny", action="store_true")
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    dtype = torch.float32 if c.dtype == "f32" else torch.bfloat16

    @functools.lru_cache(maxsize=2)
    def kernel(name):
        return Kernel(name, dtype)

    peer.take_turns(dict(name="PyTorch " + torch.__version__), lambda name: kernel(name).run(),
                    lambda name: kernel(name).values())


if __name__ == "__main__":
    main()
