"""What the programs of other frameworks that are timed beside heed's have in common, as bench/peer.h has it for heed's."""
import json
import pathlib
import sys
import time

MODEL = dict(d_model=128, heads=8, encoder_layers=3, decoder_layers=3, d_ff=512, vocab=20)
GPT = dict(d_model=768, heads=12, layers=12, vocab=50257, context=1024, batch=4, length=64)


def add_integers(parser, sizes):
    """--d-model and the like, with these defaults."""
    for name, value in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)


def ids(rows, length, vocab, seed):
    """Lists of the same symbols as heed's: a fixed rule instead of a generator."""
    return [[3 + (i * i * 7 + i * 11 + seed) % (vocab - 3) for i in range(row * length, (row + 1) * length)]
            for row in range(rows)]


def read_safetensors(path):
    """{name: heed_safetensors.Array}"""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    import heed_safetensors

    return heed_safetensors.read(path)


def load_f32(path):
    """The f32 tensors of a safetensors file, as NumPy arrays."""
    import numpy as np

    return {name: np.frombuffer(array.data, np.float32).reshape(array.shape) for name, array in read_safetensors(path).items()}


def positions(length, d_model):
    """The sinusoidal table, f32 [length, d_model]."""
    import numpy as np

    angle = np.arange(length)[:, None] * np.exp(np.arange(0, d_model, 2) * (-np.log(10000.0) / d_model))
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, d_model).astype(np.float32)


class ResidentMemory:
    """Memory of this process that is resident, less what was when this was made."""

    def __init__(self):
        self.before = self.read("VmRSS")

    def peak(self):
        """In MiB, the most since the process began."""
        return self.read("VmHWM") - self.before

    @staticmethod
    def read(key):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key + ":"))


def answer(about, run, values=None):
    """Prints `about`, by which the driver checks that all do the same work. Then for each line "run N" or "run N WHAT" on
    standard input prints the milliseconds that run(N) or run(N, WHAT) returns, so that the driver can let programs take turns;
    for "values WHAT" it prints values(WHAT), what that work results in."""
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["values"]:
            print(json.dumps(dict(values=values(words[1]))), flush=True)
        elif words[:1] == ["run"]:
            print(json.dumps(dict(milliseconds=run(int(words[1]), *words[2:]))), flush=True)
        else:
            break


def take_turns(about, work, values=None):
    """answer() with the times of N calls of work() or work(WHAT)."""

    def run(count, *what):
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            work(*what)
            times.append(1e3 * (time.perf_counter() - begin))
        return times

    answer(about, run, values)
