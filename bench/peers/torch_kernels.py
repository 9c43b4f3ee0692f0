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


# Row-wise operations: what they read (bench/operations.cpp has the kinds), and the call.
OPERATIONS = {
    "layer_norm": ("matrix row row", lambda x, w, b: F.layer_norm(x, w.shape, w, b)),
    "residual_layer_norm": ("matrix matrix row row dropout",
                            lambda residual, x, w, b, rate: F.layer_norm(residual + F.dropout(x, rate), w.shape, w, b)),
    "gelu": ("matrix", F.gelu),
    "gelu_tanh": ("matrix", lambda x: F.gelu(x, approximate="tanh")),
    "relu": ("matrix", F.relu),
    "silu": ("matrix", F.silu),
    "dropout": ("matrix dropout", F.dropout),
    "softmax": ("matrix", lambda x: F.softmax(x, -1)),
    "softmax_columns": ("matrix", lambda x: F.softmax(x, 0)),
    "log_softmax": ("matrix", lambda x: F.log_softmax(x, -1)),
    "cross_entropy": ("matrix classes", F.cross_entropy),

    "add": ("matrix matrix", torch.add),
    "add_row": ("matrix row", torch.add),
    "add_column": ("matrix column", torch.add),
    "add_number": ("matrix", lambda x: x + 1.0),
    "add_transposed": ("matrix matrix", lambda x, y: x + y.reshape(x.shape[::-1]).t()),
    "add_integers": ("integers integers", torch.add),
    "multiply": ("matrix matrix", torch.mul),
    "divide": ("matrix positive", torch.div),
    "maximum": ("matrix matrix", torch.maximum),
    "power_of_two": ("positive matrix", torch.pow),
    "power": ("positive", lambda x: x.pow(2.5)),
    "cube": ("matrix", lambda x: x.pow(3)),
    "reciprocal": ("positive", lambda x: x.pow(-1)),
    "sqrt": ("positive", torch.sqrt),
    "rsqrt": ("positive", torch.rsqrt),
    "exp": ("matrix", torch.exp),
    "log": ("positive", torch.log),
    "tanh": ("matrix", torch.tanh),
    "sigmoid": ("matrix", torch.sigmoid),
    "erf": ("matrix", torch.erf),
    "sin": ("matrix", torch.sin),
    "abs": ("matrix", torch.abs),
    "negate": ("matrix", torch.neg),
    "floor": ("matrix", torch.floor),
    "round": ("matrix", torch.round),
    "sign": ("matrix", torch.sign),
    "clamp": ("matrix", lambda x: x.clamp(-1, 1)),

    "greater": ("matrix matrix", torch.gt),
    "greater_row": ("matrix row", torch.gt),
    "is_finite": ("matrix", torch.isfinite),
    "all_finite": ("matrix", lambda x: torch.isfinite(x).all()),
    "array_equal": ("matrix", lambda x: torch.tensor(float(torch.equal(x, x)))),
    "logical_not": ("mask", torch.logical_not),
    "logical_and": ("mask mask", torch.logical_and),
    "where": ("mask matrix matrix", torch.where),
    "masked_fill": ("matrix mask", lambda x, mask: x.masked_fill(mask, 0)),
    "masked": ("matrix", lambda x: x.masked_fill(x > x[:1], 0)),
    "convert": ("matrix", lambda x: x.to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32)),
    "to_integers": ("matrix", lambda x: x.long()),
    "from_integers": ("integers dtype", torch.Tensor.to),
    "from_mask": ("mask dtype", torch.Tensor.to),

    "sum": ("matrix", torch.sum),
    "sum_rows": ("matrix", lambda x: x.sum(1)),
    "sum_columns": ("matrix", lambda x: x.sum(0)),
    "sum_integers": ("integers", torch.sum),
    "count": ("mask", torch.sum),
    "mean_rows": ("matrix", lambda x: x.mean(1)),
    "variance": ("matrix", lambda x: x.var(1)),
    "norm": ("matrix", torch.linalg.vector_norm),
    "norm_rows": ("matrix", lambda x: torch.linalg.vector_norm(x, dim=1)),
    "max": ("matrix", torch.amax),
    "max_rows": ("matrix", lambda x: x.amax(1)),
    "max_columns": ("matrix", lambda x: x.amax(0)),
    "max_rows_integers": ("integers", lambda x: x.amax(1)),
    "argmax_rows": ("matrix", lambda x: x.argmax(1)),
    "argmax_columns": ("matrix", lambda x: x.argmax(0)),
    "any": ("mask", torch.any),
    "any_rows": ("mask", lambda x: x.any(1)),
    "logsumexp": ("matrix", lambda x: torch.logsumexp(x, 1)),
    "log_sum_exp_columns": ("matrix", lambda x: torch.logsumexp(x, 0)),
    "cumsum": ("matrix", lambda x: x.cumsum(1)),
    "cumulative_sum_columns": ("matrix", lambda x: x.cumsum(0)),
    "sort": ("matrix", lambda x: x.sort(1).values),
    "topk": ("matrix", lambda x: x.topk(10, 1).values),

    "transpose": ("matrix", lambda x: x.t().contiguous()),
    "flip": ("matrix", lambda x: x.flip(1)),
    "flip_columns": ("matrix", lambda x: x.flip(0)),
    "every_second": ("matrix", lambda x: x[:, ::2].contiguous()),
    "tril": ("matrix", torch.tril),
    "cat_rows": ("matrix matrix", lambda x, y: torch.cat((x, y), 1)),
    "cat_columns": ("matrix matrix", lambda x, y: torch.cat((x, y), 0)),
    "stack": ("matrix matrix", lambda x, y: torch.stack((x, y), 2)),
    "gather": ("matrix columns", lambda x, index: x.gather(1, index)),
    "index_select": ("matrix rows", lambda x, rows: x.index_select(0, rows)),
    "scatter_add": ("matrix columns matrix", lambda x, index, y: x.scatter_add(1, index, y)),
    "one_hot": ("classes shape dtype", lambda ids, s, dtype: F.one_hot(ids, s[1]).to(dtype)),

    "zeros": ("shape dtype", lambda s, dtype: torch.zeros(s, dtype=dtype)),
    "full": ("shape dtype", lambda s, dtype: torch.full(s, 1, dtype=dtype)),
    "arange": ("shape", lambda s: torch.arange(s[0] * s[1])),
    "rand": ("shape dtype", lambda s, dtype: torch.rand(s, dtype=dtype)),
    "randn": ("shape dtype", lambda s, dtype: torch.randn(s, dtype=dtype)),
    "randint": ("shape", lambda s: torch.randint(0, 1000, s))}


def filled_integers(shape, seed):
    return (filled(shape, seed, torch.float32) * 500).long()


def filled_indices(shape, seed, count):
    return (filled_integers(shape, seed) + 1000) % count


def argument(kind, seed, s, dtype):
    """A tensor, or what else a call takes."""
    return {"matrix": lambda: filled(s, seed, dtype), "positive": lambda: filled(s, seed, dtype).abs() + 0.5,
            "row": lambda: filled(s[1:], seed, dtype), "column": lambda: filled((s[0], 1), seed, dtype),
            "mask": lambda: filled(s, seed, dtype) > 0, "integers": lambda: filled_integers(s, seed),
            "columns": lambda: filled_indices(s, seed, s[1]), "rows": lambda: filled_indices(s[:1], seed, s[0]),
            "classes": lambda: filled_indices(s[:1], seed, s[1]), "shape": lambda: s, "dtype": lambda: dtype}[kind]()


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


def linear(s, dtype):
    x, weight = filled(s[:2], 1, dtype), filled((s[2], s[1]), 2, dtype)
    return [x, weight], lambda rate: F.linear(x, weight)


def recurrent(s, dtype, kind, gates):
    """Sequences x length x width, of which the input is as wide."""
    n, all_gates = s[2], gates * s[2]
    x = filled((s[0] * s[1], n), 1, dtype)
    weights = [filled((all_gates, n), seed, dtype) * 0.02 for seed in (2, 3)]
    weights += [filled((all_gates,), seed, dtype) for seed in (4, 5)]
    states = [x.new_zeros(1, s[0], n) for _ in range(2 if kind is torch.lstm else 1)]

    def call(rate):
        first = states if kind is torch.lstm else states[0]
        return kind(x.unflatten(0, (s[0], s[1])), first, weights, True, 1, 0.0, True, False, True)[0].flatten(0, 1)

    return [x, *weights], call


def conv2d(s, dtype):
    """Batch x channels x size x outputs x kernel x stride."""
    x, weight = filled((s[0], s[1], s[2], s[2]), 1, dtype), filled((s[3], s[1], s[4], s[4]), 2, dtype)
    return [x, weight], lambda rate: F.conv2d(x, weight, stride=s[5], padding=s[4] // 2)


def row_wise(name, s, dtype):
    kinds, call = OPERATIONS[name]
    arguments = [argument(kind, i + 1, s, dtype) for i, kind in enumerate(kinds.split()) if kind != "dropout"]
    learned = [x for x in arguments if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if "dropout" in kinds:
        return learned, lambda rate: call(*arguments, rate)
    return learned, lambda rate: call(*arguments)


def operation(name, s, dtype):
    """The inputs that get gradients, and the call, which takes the rate of dropout."""
    if name in OPERATIONS:
        return row_wise(name, s, dtype)
    if name in ("attention", "causal_attention"):
        return attention(s, dtype, name == "causal_attention")
    if name in ("lstm", "gru"):
        return recurrent(s, dtype, torch.lstm if name == "lstm" else torch.gru, 4 if name == "lstm" else 3)
    if name == "conv2d":
        return conv2d(s, dtype)
    return linear(s, dtype)


class Kernel:
    def __init__(self, name, dtype):
        op, direction, shape = name.split("/")
        sizes = [int(size) for size in shape.split("x")]
        self.random = op.startswith("rand")  # other numbers in each program
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
        # Of rows PyTorch adds bf16 gradients in bf16: a twentieth off after 672 rows, a tenth after 4,096.
        return [sampled(x.grad) for x in self.inputs if x.dim() > 1 or x.dtype == torch.float32]


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
