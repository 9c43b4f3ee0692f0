"""What is compared with PyTorch: a row names one of heed's benchmarks and the same work in torch_peer.py."""
import collections
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SIZES = dict(f32=4, bf16=2)

# `bytes` among the arguments: how large the buffers of one call are, at least.
Row = collections.namedtuple("Row", "program benchmark work variants arguments")


def layer_norm(direction, dtype, rows, cols, residual=False):
    """Of a tensor, or of residual + dropout(tensor)."""
    work = f"{'residual_' if residual else ''}layer_norm_{direction}"
    return Row("cuda_layer_norm_bench", f"{work}/{dtype}/{rows}/{cols}/manual_time", work, ("eager", "compiled"),
               dict(dtype=dtype, rows=rows, cols=cols, bytes=(4 if residual else 2) * rows * cols * SIZES[dtype]))


def attention(direction, sequences, heads, length, width, causal):
    """PyTorch's, with each of its implementations in turn: it does not always choose the fastest."""
    sizes = f"{sequences}/{heads}/{length}/{width}/{int(causal)}"
    return Row("cuda_attention_bench", f"attention_{direction}/bf16/{sizes}/manual_time", f"attention_{direction}",
               ("cudnn", "flash", "efficient", "math"),
               dict(dtype="bf16", sequences=sequences, heads=heads, length=length, width=width, causal=causal,
                    bytes=4 * sequences * heads * length * width * SIZES["bf16"]))


def training_step(dtype):
    return Row("cuda_step_bench", f"training_step/{dtype}/graph/manual_time", "training_step",
               ("eager", "compiled", "graph"), dict(dtype=dtype, bytes=1 << 40))


ROWS = (
    training_step("bf16"),
    training_step("f32"),
    layer_norm("forward", "bf16", 16384, 1024, residual=True),
    layer_norm("backward", "bf16", 16384, 1024, residual=True),
    layer_norm("forward", "bf16", 16384, 1024),
    layer_norm("backward", "bf16", 16384, 1024),
    attention("forward", 256, 8, 64, 64, False),
    attention("backward", 256, 8, 64, 64, False),
    attention("forward", 512, 8, 32, 16, False),
    attention("backward", 512, 8, 32, 16, False),
    attention("forward", 16, 16, 1024, 64, True),
    attention("backward", 16, 16, 1024, 64, True),
    attention("forward", 4, 16, 4096, 128, False),
    attention("backward", 4, 16, 4096, 128, False),
    layer_norm("forward", "f32", 16384, 1024),
    layer_norm("backward", "f32", 16384, 1024),
    layer_norm("forward", "bf16", 131072, 128),
    layer_norm("backward", "bf16", 131072, 128),
)


def python_with_torch():
    """A Python that can import torch, or None."""
    for program in dict.fromkeys([shutil.which("python3"), shutil.which("python"), sys.executable]):
        if program is None:
            continue
        code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
        if subprocess.run([program, "-c", code], check=False).returncode == 0:
            return program
    return None


class Peer:
    """torch_peer.py as a process that answers questions; `left` says how many seconds there still are."""

    def __init__(self, left, device="cuda", python=None, script=HERE / "torch_peer.py"):
        self.left, self.about, self.reason, self.process, self.buffer = left, None, "", None, b""
        python = python or python_with_torch()
        if python is None:
            self.reason = "PyTorch is not installed"
            return
        self.process = subprocess.Popen([python, str(script), device], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        answer = self.answer()
        if "error" in answer:
            self.reason = answer["error"]
        else:
            self.about = answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()

    def answer(self):
        end = time.monotonic() + self.left()
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                return dict(error="its time ran out", timed_out=True)
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return dict(error="PyTorch ended unexpectedly")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def time(self, row, variant):
        question = dict(work=row.work, variant=variant, **row.arguments)
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return dict(error="PyTorch ended unexpectedly")
        return self.answer()
