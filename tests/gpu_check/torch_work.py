"""The work that is compared, in PyTorch.

A function of WORK takes (device, number of the set, question, wrap) and gives a call to be timed; what wrap gives back does
what it was given, as the question's variant wants it: compiled, or by one of the implementations of attention.
"""
import pathlib
import sys
import types

import torch
import torch._functorch.config
import torch.nn.attention
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench" / "peers")]
import peer  # noqa: E402
import torch_gpt  # noqa: E402
import torch_step  # noqa: E402

DTYPES = dict(f32=torch.float32, bf16=torch.bfloat16)
ATTENTION = dict(cudnn="CUDNN_ATTENTION", flash="FLASH_ATTENTION")


def wrapper(variant, step):
    if variant.startswith("compiled"):
        # A step that is captured as a whole needs no graphs of the compiler's own.
        mode = "reduce-overhead" if step and variant == "compiled" else "default"
        torch._functorch.config.donated_buffer = step  # a backward pass that is timed is repeated on what it reads
        return lambda f: torch.compile(f, dynamic=False, mode=mode)
    if variant not in ATTENTION:
        return lambda f: f
    backend = getattr(torch.nn.attention.SDPBackend, ATTENTION[variant])

    def chosen(f):
        def call(*arguments):
            with torch.nn.attention.sdpa_kernel(backend):
                return f(*arguments)
        return call
    return chosen


def normal(device, seed, dtype, *shapes):
    torch.manual_seed(seed)
    return [torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in shapes]


def layer_norm_inputs(device, seed, question):
    shape = question["rows"], question["cols"]
    return normal(device, seed, question["dtype"], shape, shape, shape[1], shape[1])


def layer_norm_forward(device, seed, question, wrap):
    x, _, weight, bias = layer_norm_inputs(device, seed, question)
    function = wrap(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))
    return lambda: function(x, weight, bias)


def layer_norm_backward(device, seed, question, wrap):
    x, gy, weight, bias = layer_norm_inputs(device, seed, question)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    y = wrap(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))(*inputs)
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


def residual_layer_norm_operands(device, seed, question, wrap):
    """The function, what it takes and the gradient of what it gives; gradients are wanted of all that it takes."""
    x, gy, weight, bias = layer_norm_inputs(device, seed, question)
    inputs = [t.requires_grad_() for t in (x, torch.randn_like(x), weight, bias)]

    def function(x, residual, weight, bias):
        return F.layer_norm(residual + F.dropout(x, 0.1), weight.shape, weight, bias)
    return wrap(function), inputs, gy


def residual_layer_norm_forward(device, seed, question, wrap):
    function, inputs, _ = residual_layer_norm_operands(device, seed, question, wrap)
    return lambda: function(*inputs)


def residual_layer_norm_backward(device, seed, question, wrap):
    function, inputs, gy = residual_layer_norm_operands(device, seed, question, wrap)
    y = function(*inputs)
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


def attention_inputs(device, seed, question):
    shape = [question[key] for key in ("sequences", "length", "heads", "width")]
    qkv = [t.transpose(1, 2) for t in normal(device, seed, question["dtype"], *[shape] * 4)]
    return qkv[:3], qkv[3]


def attention_forward(device, seed, question, wrap):
    qkv, _ = attention_inputs(device, seed, question)
    function = wrap(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=question["causal"]))
    return lambda: function(*qkv)


def attention_backward(device, seed, question, wrap):
    qkv, gout = attention_inputs(device, seed, question)
    for tensor in qkv:
        tensor.requires_grad_()
    out = wrap(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=question["causal"]))(*qkv)
    return lambda: torch.autograd.grad(out, qkv, gout, retain_graph=True)


def cross_entropy(device, seed, question, wrap):
    """With its gradient, as heed's does both at once."""
    x, = normal(device, seed, question["dtype"], (question["rows"], question["cols"]))
    x.requires_grad_()
    targets = torch.arange(question["rows"], device=device) * 7919 % question["cols"]
    function = wrap(lambda x, targets: F.cross_entropy(x, targets, label_smoothing=0.1))
    return lambda: torch.autograd.grad(function(x, targets), x)


def gelu_forward(device, seed, question, wrap):
    x, = normal(device, seed, question["dtype"], (question["rows"], question["cols"]))
    function = wrap(F.gelu)
    return lambda: function(x)


def gelu_backward(device, seed, question, wrap):
    shape = question["rows"], question["cols"]
    x, gy = normal(device, seed, question["dtype"], shape, shape)
    x.requires_grad_()
    y = wrap(lambda x: F.gelu(x))(x)
    return lambda: torch.autograd.grad(y, x, gy, retain_graph=True)


def adam(device, seed, question, wrap):
    """AdamW: PyTorch's fused kernel, or what its compiler makes of the plain one."""
    x, g = normal(device, seed, question["dtype"], *[(question["rows"], question["cols"])] * 2)
    compiled = question["variant"] == "compiled"
    x.requires_grad_().grad = g
    rate = torch.tensor(1e-3, device=device) if device == "cuda" else 1e-3
    optimizer = torch.optim.AdamW([x], lr=rate, weight_decay=0.01, fused=not compiled, foreach=compiled or None,
                                  capturable=device == "cuda")
    return wrap(optimizer.step) if compiled else optimizer.step


def step_of(device, question, wrap, model, loss):
    """Forward, loss, backward, clipping and Adam; the model with its loss is compiled as one."""
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=device == "cuda")
    function, bf16 = wrap(loss), question["dtype"] == "bf16"

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=bf16, cache_enabled=False):
            result = function()
        result.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    return step


def training_step(device, seed, question, wrap):
    """That of bench/peers/torch_step.py, which a pack has beside this file."""
    torch.manual_seed(seed)
    c = types.SimpleNamespace(**torch_step.SIZES, dropout=0.1)
    model = torch_step.Model(c)
    source, target, labels = (torch_step.ids(c.batch, length, c.vocab, n).to(device)
                              for n, length in enumerate((c.source, c.target, c.target), 1))

    def loss():
        logits = model(source, target)
        return F.cross_entropy(logits.float().reshape(-1, c.vocab), labels.reshape(-1), ignore_index=0)
    return step_of(device, question, wrap, model, loss)


def gpt_step(device, seed, question, wrap):
    """That of bench/peers/torch_gpt.py with the sizes of GPT-2's 124 million parameters and a batch for a GPU."""
    torch.manual_seed(seed)
    c = types.SimpleNamespace(**dict(peer.GPT, **dict(question.get("sizes") or dict(batch=64, length=1024))))
    model = torch_gpt.Gpt(c)
    for parameter in model.parameters():  # PyTorch's embeddings are too large for tied logits
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    tokens = (torch.arange(c.batch * c.length, device=device) * 7919 % c.vocab).view(c.batch, c.length)
    labels = tokens.flatten().roll(-1)

    def loss():
        return F.cross_entropy(model(tokens).flatten(0, 1), labels)
    return step_of(device, question, wrap, model, loss)


WORK = {function.__name__: function for function in (
    training_step, gpt_step, layer_norm_forward, layer_norm_backward, residual_layer_norm_forward, residual_layer_norm_backward,
    attention_forward, attention_backward, cross_entropy, gelu_forward, gelu_backward, adam)}
