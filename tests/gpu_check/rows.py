"""What is compared with PyTorch: a row names one of heed's benchmarks and the same work in torch_work.py."""
import collections

SIZES = dict(f32=4, bf16=2)

# `bytes` among the arguments: how large the buffers of one call are, at least. `seconds`: how long PyTorch may take to get
# ready and be timed. `goals`: how many times as long as heed's it should at least take, by variant.
Row = collections.namedtuple("Row", "program benchmark work variants arguments seconds goals")

EAGER_AND_COMPILED = ("eager", "compiled")


def layer_norm(direction, dtype, rows, cols, residual=False):
    """Of a tensor, or of residual + dropout(tensor) as in a post-norm block."""
    work = f"{'residual_' if residual else ''}layer_norm_{direction}"
    goals = dict(eager=2.5, compiled=1.15) if residual and direction == "forward" else {}
    return Row("cuda_layer_norm_bench", f"{work}/{dtype}/{rows}/{cols}", work, EAGER_AND_COMPILED,
               dict(dtype=dtype, rows=rows, cols=cols, bytes=(4 if residual else 2) * rows * cols * SIZES[dtype]), 30, goals)


def attention(direction, sequences, heads, length, width, causal):
    """PyTorch's, with each of its fast implementations: it does not always choose the fastest."""
    goal = 1.0 if length > 128 else 1.3 if direction == "forward" else 2.0
    return Row("cuda_attention_bench", f"attention_{direction}/bf16/{sequences}/{heads}/{length}/{width}/{int(causal)}",
               f"attention_{direction}", ("cudnn", "flash"),
               dict(dtype="bf16", sequences=sequences, heads=heads, length=length, width=width, causal=causal,
                    bytes=4 * sequences * heads * length * width * SIZES["bf16"]), 15, dict(best=goal))


def memory(benchmark, work, dtype, rows, cols, passes, goals=None):
    return Row("cuda_memory_bench", f"{benchmark}/{dtype}/{rows}/{cols}", work, EAGER_AND_COMPILED,
               dict(dtype=dtype, rows=rows, cols=cols, bytes=passes * rows * cols * SIZES[dtype]), 30, goals or {})


def step(program, benchmark, work, dtype, variants, seconds, goals):
    return Row(program, benchmark, work, variants, dict(dtype=dtype, bytes=1 << 40), seconds, goals)


def both(make, *arguments, **options):
    return tuple(make(direction, *arguments, **options) for direction in ("forward", "backward"))


STEPS = (
    step("cuda_step_bench", "training_step/bf16/graph", "training_step", "bf16",
         ("eager", "graph", "compiled_graph", "compiled"), 40, dict(eager=10.0, compiled_graph=1.3, compiled=1.3)),
    step("cuda_gpt_bench", "gpt_step/bf16/graph/64/1024", "gpt_step", "bf16",
         ("compiled_graph", "graph", "eager"), 60, dict(compiled_graph=1.25)),
)
ROWS = (
    *both(attention, 4, 16, 4096, 128, False), *both(attention, 4, 16, 4096, 128, True),
    *both(attention, 4, 16, 4096, 64, False), *both(attention, 4, 16, 4096, 64, True),
    *both(attention, 16, 16, 1024, 64, True), *both(attention, 128, 8, 128, 64, True),
    *both(attention, 256, 8, 64, 64, False), *both(attention, 512, 8, 32, 16, False),
    *both(attention, 1, 16, 16384, 128, False), *both(attention, 1, 16, 16384, 128, True),
    *both(attention, 1, 16, 16384, 64, False), *both(attention, 1, 16, 16384, 64, True),
    *both(layer_norm, "bf16", 16384, 1024), *both(layer_norm, "bf16", 16384, 1024, residual=True),
    *both(layer_norm, "bf16", 4096, 8192), *both(layer_norm, "bf16", 131072, 128),
    memory("cross_entropy_of_many_rows", "cross_entropy", "bf16", 16384, 32768, 2, dict(compiled=1.5)),
    memory("gelu_forward", "gelu_forward", "bf16", 8192, 4096, 2),
    memory("gelu_backward", "gelu_backward", "bf16", 8192, 4096, 3),
    memory("adam", "adam", "f32", 16384, 1024, 4),
    *STEPS,
)
