"""Times work in PyTorch: a question in JSON a line on standard input, an answer a line on standard output.

A function of WORK takes (device, number of the set, question, wrap) and gives a call to be timed; what wrap gives back
does what it was given, as the question's variant wants it: compiled, or by one of the implementations of attention. Calls are captured
in a CUDA graph, so that Python's own time is not counted; sets of buffers take turns, so that none is found in the cache.
"""
import json
import os
import pathlib
import statistics
import sys
import time
import types

try:
    import torch
    import torch.nn.attention
    from torch.nn import functional as F
except ImportError as error:
    print(json.dumps(dict(error=f"PyTorch cannot be imported: {error}")), flush=True)
    sys.exit(0)

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench" / "peers")]
import torch_step  # noqa: E402

DTYPES = dict(f32=torch.float32, bf16=torch.bfloat16)
ATTENTION = dict(cudnn="CUDNN_ATTENTION", flash="FLASH_ATTENTION", efficient="EFFICIENT_ATTENTION", math="MATH")


def layer_norm_inputs(device, seed, question):
    torch.manual_seed(seed)
    shape, dtype = (question["rows"], question["cols"]), DTYPES[question["dtype"]]
    x, gy = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(shape[1], device=device).to(dtype) for _ in range(2))
    return x, gy, weight, bias


def layer_norm_forward(device, seed, question, wrap):
    x, _, weight, bias = layer_norm_inputs(device, seed, question)
    function = wrap(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))
    return lambda: function(x, weight, bias)


def layer_norm_backward(device, seed, question, wrap):
    x, gy, weight, bias = (t.requires_grad_() for t in layer_norm_inputs(device, seed, question))
    y = wrap(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))(x, weight, bias)
    return lambda: torch.autograd.grad(y, (x, weight, bias), gy.detach(), retain_graph=True)


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
    torch.manual_seed(seed)
    shape = [question[key] for key in ("sequences", "length", "heads", "width")]
    qkv = [torch.randn(shape, device=device).to(DTYPES[question["dtype"]]).transpose(1, 2) for _ in range(4)]
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


def training_step(device, seed, question, wrap):
    """That of bench/peers/torch_step.py, which a pack has beside this file."""
    torch.manual_seed(seed)
    c = types.SimpleNamespace(**torch_step.SIZES, dropout=0.1)
    model = torch_step.Model(c).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=device == "cuda")
    source, target, labels = (torch_step.ids(c.batch, length, c.vocab, n).to(device)
                              for n, length in enumerate((c.source, c.target, c.target), 1))
    forward, bf16 = wrap(model), question["dtype"] == "bf16"

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=bf16, cache_enabled=False):
            logits = forward(source, target)
        F.cross_entropy(logits.float().reshape(-1, c.vocab), labels.reshape(-1), ignore_index=0).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    return step


WORK = dict(training_step=training_step, layer_norm_forward=layer_norm_forward, layer_norm_backward=layer_norm_backward,
            residual_layer_norm_forward=residual_layer_norm_forward,
            residual_layer_norm_backward=residual_layer_norm_backward,
            attention_forward=attention_forward, attention_backward=attention_backward)


def wrapper(variant):
    if variant == "compiled":
        return lambda f: torch.compile(f, dynamic=False)
    if variant not in ATTENTION:
        return lambda f: f
    backend = getattr(torch.nn.attention.SDPBackend, ATTENTION[variant])

    def chosen(f):
        def call(*arguments):
            with torch.nn.attention.sdpa_kernel(backend):
                return f(*arguments)
        return call
    return chosen


class Timer:
    def __init__(self, device):
        self.cuda = device == "cuda"

    def seconds(self, run):
        if not self.cuda:
            begin = time.perf_counter()
            run()
            return time.perf_counter() - begin
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return 1e-3 * start.elapsed_time(end)

    def prepared(self, calls, graph):
        """Something that does all the calls at once, and how: by a graph where that works, or one after the other."""
        def one_by_one():
            for call in calls:
                call()

        for _ in range(3):  # warms up, and compiles
            one_by_one()
        if not self.cuda or not graph:
            return one_by_one, "calls"
        try:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                one_by_one()
            graph.replay()
            torch.cuda.synchronize()
            return graph.replay, "graph"
        except RuntimeError:
            torch.cuda.synchronize()
            return one_by_one, "calls"


def prepare(device, question):
    """How many calls are timed at once, what does them, and how."""
    wrap = wrapper(question["variant"])
    l2 = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    calls = [WORK[question["work"]](device, seed, question, wrap) for seed in range(4 * l2 // question["bytes"] + 1)]
    graph = question["work"] != "training_step" or question["variant"] == "graph"  # a step's own launches count
    return (len(calls), *Timer(device).prepared(calls, graph))


def measure(device, question, kept):
    variant = question["variant"]
    work = {key: value for key, value in question.items() if key != "variant"}
    if kept.get("work") != work:  # the buffers of one row only
        kept.clear()
        kept["work"] = work
        torch.compiler.reset()
    if variant not in kept:
        kept[variant] = prepare(device, question)
    count, run, how = kept[variant]
    timer = Timer(device)
    once = timer.seconds(run)
    repeats = max(1, int(2e-3 / max(once, 1e-7)))

    def batch():
        for _ in range(repeats):
            run()

    times = [timer.seconds(batch) / (repeats * count) for _ in range(20)]
    return dict(microseconds=1e6 * statistics.median(times), least=1e6 * min(times), most=1e6 * max(times), how=how)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print does not belong among the answers
    if device == "cuda" and not torch.cuda.is_available():
        print(json.dumps(dict(error=f"PyTorch {torch.__version__} sees no CUDA device")), file=answers, flush=True)
        return
    print(json.dumps(dict(version=f"PyTorch {torch.__version__}")), file=answers, flush=True)
    kept = {}
    for line in sys.stdin:
        try:
            answer = measure(device, json.loads(line), kept)
        except Exception as error:  # an answer in any case: the other rows may work
            answer = dict(error=f"{type(error).__name__}: {error}".splitlines()[0])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
