"""Runs heed's benchmarks: one process a program, and one a benchmark where a program does not get through."""
import json
import pathlib
import re
import tempfile
import time

from command import Watch
from frame import FAILED, INCOMPLETE, PASSED, SKIPPED
from gtest import NO_DEVICE

SILENCE = 45  # seconds that a program may take from one result to the next
TO_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
RATES = (("bytes_per_second", "GB/s", 1e9, "copy"), ("flops_per_second", "TFLOP/s", 1e12, "cublaslt"),
         ("tokens_per_second", "tokens/s", 1.0, None))
# What a first contact times: what the others are a share of, and one size of what matters most.
FIRST = {"cuda_copy_bench": None, "cuda_cublaslt_bench": None,
         "cuda_layer_norm_bench": r"^(residual_)?layer_norm_(forward|backward)/bf16/16384/1024/",
         "cuda_attention_bench": r"/bf16/(16/16/1024/64/1|4/16/4096/128/0)/", "cuda_step_bench": None}
FIRST_BATCHES = 3
# What others are a share of comes first; then what takes the most memory, before a peer wants it.
ORDER = ("copy", "cublaslt", "gpt")


def plain_name(name):
    return re.sub(r"(/iterations:\d+)?(/manual_time)?$", "", name)


def read_results(text):
    """{name: run} of a report in JSON, as far as it goes: a program that was ended leaves a part of it."""
    runs, decoder = {}, json.JSONDecoder()
    at = text.find('"benchmarks"')
    while at >= 0:
        at = text.find("{", at)
        if at < 0:
            break
        try:
            run, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        if "name" in run and run.get("run_type") != "aggregate":
            runs[plain_name(run["name"])] = run
    return runs


def result_of(run):
    """What is kept of a run."""
    scale = TO_US[run["time_unit"]]
    kept = {key: run[key] for key, *_ in RATES if key in run}
    return dict(microseconds=run["real_time"] * scale, least=run.get("least_us"), most=run.get("most_us"), **kept)


class Results(Watch):
    """Tells each result when it comes. A program that is silent for too long is ended."""

    def __init__(self, file, silence, tell):
        self.file, self.silence, self.tell = file, silence, tell
        self.names, self.size, self.last = set(), 0, time.monotonic()

    def line(self, _):
        self.take()
        return False

    def take(self):
        size = self.file.stat().st_size if self.file.exists() else 0
        if size == self.size:
            return
        self.size = size
        for name, run in read_results(self.file.read_text(errors="replace")).items():
            if name not in self.names:
                self.names.add(name)
                self.last = time.monotonic()
                self.tell(name, run)

    def deadline(self):
        return self.last + self.silence


def run_once(part, program, pattern, batches, tell, silence=SILENCE):
    """One process; its outcome and the names of what it timed."""
    with tempfile.TemporaryDirectory() as folder:
        results = Results(pathlib.Path(folder) / "results.json", part.scaled(silence), tell)
        outcome = part.run([program, f"--benchmark_out={results.file}", "--benchmark_out_format=json", f"--batches={batches}",
                            *([f"--benchmark_filter={pattern}"] if pattern else [])], watch=results)
        results.take()
        return outcome, results.names


def listed(part, program, pattern):
    """The names of a program's benchmarks, with all that Google Benchmark puts behind them."""
    outcome = part.run([program, "--benchmark_list_tests", *([f"--benchmark_filter={pattern}"] if pattern else [])], 20)
    return [line.strip() for line in outcome.output.splitlines() if re.fullmatch(r"\w+(/[\w:.]+)+", line.strip())]


def run_program(part, program, pattern, batches, tell, fail):
    """All benchmarks of a program that match: tell(name, run) for each, fail(name, status, detail) for what goes wrong."""
    outcome, done = run_once(part, program, pattern, batches, tell)
    if outcome.code == NO_DEVICE and not done:
        return fail(program.name, SKIPPED, "no device")
    if outcome.code == 0 and done:
        return None
    fail(program.name, INCOMPLETE if outcome.timed_out else FAILED,
         f"{outcome.how()} after {len(done)} results: {outcome.last_line()}")
    for name in listed(part, program, pattern):
        if plain_name(name) in done or part.left() <= 0:
            continue
        outcome, found = run_once(part, program, f"^{re.escape(name)}$", batches, tell)
        if not found:
            fail(plain_name(name), INCOMPLETE if outcome.timed_out else FAILED, f"{outcome.how()}: {outcome.last_line()}")
    return None


class Recorder:
    """Records results as shares of the best copy and the best product so far."""

    def __init__(self, pack, part, suffix=""):
        self.pack, self.part, self.suffix, self.peaks = pack, part, suffix, {}

    def fail(self, name, status, detail):
        self.part.record(name + self.suffix, status, detail)

    def tell(self, name, run):
        if run.get("error_occurred"):
            return self.fail(name, FAILED, run.get("error_message", "an error"))
        result = result_of(run)
        detail = f"{result['microseconds']:.1f} us"
        for key, unit, scale, reference in RATES:
            if key not in result or (key == "bytes_per_second" and "flops_per_second" in result):
                continue  # what is bound by arithmetic is no share of the copy
            if reference and name.startswith(reference):
                self.peaks[key] = max(result[key], self.peaks.get(key, 0))
            detail += f", {result[key] / scale:.1f} {unit}"
            if self.peaks.get(key):
                result["percent_of_" + reference] = round(100 * result[key] / self.peaks[key], 1)
                detail += f" ({100 * result[key] / self.peaks[key]:.0f} % of {reference})"
        self.pack.timed[name] = result["microseconds"]
        return self.part.record(name + self.suffix, PASSED, detail, **result)


def time_programs(pack, part, chosen, batches, suffix=""):
    """The programs in `chosen`, each with a pattern of its benchmarks or None, else all."""
    def place(program):
        return next((i for i, word in enumerate(ORDER) if word in program.name), len(ORDER)), program.name

    recorder = Recorder(pack, part, suffix)
    programs = sorted(pack.programs("bench"), key=place)
    if not programs:
        part.record("benchmarks", SKIPPED if pack.emulated else FAILED, "the pack holds none")
    for program in programs:
        if chosen is None or program.name in chosen:
            # An emulated device has sizes of its own, one of each.
            pattern = None if chosen is None or pack.emulated else chosen[program.name]
            run_program(part, program, pattern, 1 if pack.emulated else batches, recorder.tell, recorder.fail)


def first(pack, part):
    time_programs(pack, part, FIRST, FIRST_BATCHES)


def all_of_them(pack, part):
    if pack.emulated:
        return part.record("benchmarks", SKIPPED, "the device is emulated: its times mean nothing")
    return time_programs(pack, part, None, 10)
