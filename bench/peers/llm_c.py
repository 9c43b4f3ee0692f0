"""One training step of GPT-2 by llm.c's C program: the same work as bench/gpt, from its weights, but for what train_gpt2.c does
by itself: no clipping, no weight decay, and a vocabulary padded to a multiple of 128.

`--llm-c FOLDER` is a checkout of github.com/karpathy/llm.c whose train_gpt2.c reads checkpoints of version 3 and tokens of 16
bits (May 2024 and later). It is compiled as its Makefile does, and given weights and tokens in files of its formats. Each turn
starts it anew, leaves out the first steps, which ask for memory, reads the milliseconds that it prints of each step, and ends
it: its validation losses come between the steps, and before step 20 it would generate text.
"""
import argparse
import array
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import peer

BATCH, LENGTH = 4, 64  # fixed in train_gpt2.c
WARM_UP, LAST = 2, 20
FLAGS = ("-Ofast -march=native -fno-finite-math-only -Wno-unused-result -Wno-ignored-pragmas -Wno-unknown-attributes -fopenmp "
         "-DOMP").split()
STEP = re.compile(r"step \d+: train loss (\S+) \(took (\S+) ms\)")

# Its tensors in the order of its file, by heed's names; those of a layer are stacked, layer upon layer.
LAYER = "layers.{}."
TENSORS = ["embedding.weight", "position.weight",
           *(LAYER + part for part in (
               "norm1.weight", "norm1.bias", "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
               "self_attn.out_proj.bias", "norm2.weight", "norm2.bias", "linear1.weight", "linear1.bias", "linear2.weight",
               "linear2.bias")),
           "norm.weight", "norm.bias"]


def header(*numbers):
    return array.array("i", [*numbers, *[0] * (256 - len(numbers))]).tobytes()


def write_checkpoint(c, path):
    """The weights that heed wrote, in llm.c's format; returns how many there are."""
    weights = peer.read_safetensors(c.weights)
    padded = (c.vocab + 127) // 128 * 128
    with open(path, "wb") as file:
        file.write(header(20240326, 3, c.context, c.vocab, c.layers, c.heads, c.d_model, padded))
        for name in TENSORS:
            for layer in range(c.layers if name.startswith(LAYER) else 1):
                file.write(weights[name.format(layer)].data)
            if name == "embedding.weight":
                file.write(bytes(4 * (padded - c.vocab) * c.d_model))
    return sum(len(tensor.data) // 4 for tensor in weights.values())


def write_tokens(symbols, folder):
    """The batch again and again, so that it is each step's: what follows its last symbol is its first."""
    symbols = symbols * LAST + symbols[:1]
    data = folder / "dev/data/tinyshakespeare"
    data.mkdir(parents=True)
    for split in "train", "val":
        (data / f"tiny_shakespeare_{split}.bin").write_bytes(
            header(20240520, 1, len(symbols)) + array.array("H", symbols).tobytes())


def first_steps(count, folder, threads):
    """[(loss, milliseconds)] of the first steps of a new process."""
    steps = []
    with subprocess.Popen(["stdbuf", "-oL", folder / "train_gpt2"], cwd=folder, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(threads))) as process:
        for line in process.stdout:
            if match := STEP.match(line):
                steps.append(tuple(map(float, match.groups())))
            if len(steps) == count:
                process.kill()
                return steps
    sys.exit(f"llm_c: train_gpt2 ended with {process.returncode} after {len(steps)} of {count} steps")


def parse():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, peer.GPT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32"], default="f32")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--llm-c", type=pathlib.Path, required=True)
    c = parser.parse_args()
    if (c.batch, c.length) != (BATCH, LENGTH) or c.vocab > 1 << 16:
        parser.error(f"train_gpt2.c trains on batches of {BATCH} x {LENGTH} symbols of 16 bits")
    return c


def main():
    c = parse()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([os.environ.get("CC", "cc"), *FLAGS, c.llm_c / "train_gpt2.c", "-lm", "-lgomp", "-o",
                        folder / "train_gpt2"], check=True)
        parameters = write_checkpoint(c, folder / "gpt2_124M.bin")
        write_tokens(peer.ids(1, BATCH * LENGTH, c.vocab, 1)[0], folder)

        def run(count):
            if WARM_UP + count > LAST:
                sys.exit(f"llm_c: at most {LAST - WARM_UP} steps a turn")
            return [milliseconds for _, milliseconds in first_steps(WARM_UP + count, folder, c.threads)[WARM_UP:]]

        loss, _ = first_steps(1, folder, c.threads)[0]
        peer.answer(dict(name="llm.c", parameters=parameters, loss=loss), run)


if __name__ == "__main__":
    main()
