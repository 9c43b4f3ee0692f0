"""Compares heed with PyTorch. What PyTorch compiles is compiled by processes of their own, from the check's begin on; their
results lie in a folder of the compiler's that the process which is timed reads."""
import pathlib
import shutil
import statistics
import tempfile

import benchmarks
from frame import INCOMPLETE, PASSED, SKIPPED
from rows import ROWS, STEPS
from torch_process import Peer, python_with_torch, question

START = 40  # seconds that PyTorch may take to start
RESTARTS = 4


class Torch:
    """The processes of a check: two that compile, one that is timed."""

    def __init__(self, out, running, python=None, **options):
        self.python = python or python_with_torch()
        self.cache = pathlib.Path(tempfile.mkdtemp(prefix="heed-compiled-"))
        self.start_one = lambda: Peer(self.python, self.cache, out / "pytorch.txt", running, **options)
        self.compilers, self.peer = [], None

    def compile(self, *lists):
        """Starts to compile the variants of each list's rows, in their order."""
        for rows in lists:
            compiler = self.start_one()
            asked = [question(row, variant, only_prepare=True)
                     for row in rows for variant in row.variants if "compiled" in variant]
            for each in asked:
                compiler.ask(each)
            self.compilers.append((compiler, {each["name"] for each in asked}))

    def compiled(self, asked, seconds):
        """Waits for what compiles this; an error if that failed."""
        for compiler, names in self.compilers:
            if asked["name"] in names:
                return compiler.wait(asked["name"], seconds)
        return {}

    def start(self, seconds=START):
        """Starts the process that is timed, where there is none; what it says of itself, or an error."""
        if self.peer is None:
            self.peer = self.start_one()
            if "error" in self.peer.start(seconds):
                return self.end_peer().about
        return self.peer.about

    def time(self, asked, seconds):
        """The answer of the process that is timed, which is started anew after it hung or ended."""
        about = self.start()
        if "error" in about:
            return about
        self.peer.ask(asked)
        answer = self.peer.wait(asked["name"], seconds)
        if answer.get("timed_out") or answer.get("ended"):
            self.end_peer()
        return answer

    def end_peer(self):
        peer, self.peer = self.peer, None
        peer.close()
        return peer

    def close(self):
        for process in [*(compiler for compiler, _ in self.compilers), *([self.peer] if self.peer else [])]:
            process.close()
        shutil.rmtree(self.cache, ignore_errors=True)


def begin(pack, part):
    """Starts what compiles in the background, for compare()."""
    if pack.emulated:
        return part.record("PyTorch", SKIPPED, "the device is emulated")
    if python_with_torch() is None:
        return part.record("PyTorch", SKIPPED, "it is not installed")
    pack.torch = Torch(part.frame.out, part.frame.running)
    pack.torch.compile(STEPS, [row for row in ROWS if row not in STEPS])
    return part.record("PyTorch", PASSED, f"compiles for {pack.torch.python}")


def compare(pack, part, rows=ROWS):
    torch = pack.torch
    if torch is None:
        return part.record("PyTorch", SKIPPED, "the device is emulated" if pack.emulated else "it is not installed")
    try:
        about = torch.start(min(START, part.left()))
        if "error" in about:
            return part.record("PyTorch", SKIPPED, about["error"])
        part.record("PyTorch", PASSED, about["version"])
        return compare_rows(pack, part, torch, rows)
    finally:
        torch.close()


def compare_rows(pack, part, torch, rows):
    lost = 0
    for number, row in enumerate(rows):
        if part.left() <= 0 or lost > RESTARTS:
            why = "no time was left" if lost <= RESTARTS else "PyTorch ends too often"
            return part.record("the rest", INCOMPLETE, f"{why}, {len(rows) - number} rows from {row.benchmark} on")
        lost += compare_row(pack, part, torch, row)
    return None


def ours_of(pack, part, row):
    """The microseconds of heed's benchmark, which is run if it was not yet."""
    if row.benchmark not in pack.timed:
        program = next(program for program in pack.programs("bench") if program.name == row.program)
        recorder = benchmarks.Recorder(pack, part)
        benchmarks.run_program(part, program, f"^{row.benchmark}/", 10, recorder.tell, recorder.fail)
    return pack.timed.get(row.benchmark)


def compare_row(pack, part, torch, row):
    """Each variant of a row; how many processes were lost."""
    ours, best, lost = ours_of(pack, part, row), None, 0
    for variant in row.variants:
        name, asked = f"{row.benchmark} and PyTorch {variant}", question(row, variant)
        compiled = torch.compiled(asked, min(part.left(), part.scaled(3 * row.seconds)))
        answer = compiled if "error" in compiled else torch.time(asked, min(part.left(), part.scaled(row.seconds)))
        if "error" in answer:
            lost += torch.peer is None
            part.record(name, INCOMPLETE if answer.get("timed_out") else SKIPPED, answer["error"])
            continue
        theirs = answer["microseconds"]
        more = {key: answer[key] for key in ("how", "least", "most") if key in answer}
        record_ratio(part, name, ours, theirs, row.goals.get(variant), more)
        if best is None or theirs < best:
            best = theirs
    if best is not None and len(row.variants) > 1:
        record_ratio(part, f"{row.benchmark} and PyTorch at its best", ours, best, row.goals.get("best"), {})
    return lost


def record_ratio(part, name, ours, theirs, goal, more):
    how = f" ({more['how']})" if "how" in more else ""
    if ours is None:
        return part.record(name, PASSED, f"PyTorch {theirs:.1f} us{how}; heed's time is not known", theirs=theirs, **more)
    detail = f"{ours:.1f} us, PyTorch {theirs:.1f} us{how}: {theirs / ours:.2f} times as long"
    if goal:
        detail += f", goal {goal}: {'reached' if theirs >= goal * ours else 'missed'}"
    return part.record(name, PASSED, detail, ours=ours, theirs=theirs, ratio=theirs / ours, goal=goal, **more)


def again(pack, part):
    """The main times once more, with nothing compiled beside them: how far the times of this machine can be trusted."""
    if pack.emulated:
        return part.record("benchmarks", SKIPPED, "the device is emulated: its times mean nothing")
    before = dict(pack.timed)
    benchmarks.time_programs(pack, part, benchmarks.FIRST, 5, suffix=", again")
    ratios = sorted(pack.timed[name] / before[name] for name in before if pack.timed[name] != before[name])
    if ratios:
        part.record("again, of the first time", PASSED,
                    f"{statistics.median(ratios):.2f} in the middle, {ratios[0]:.2f} to {ratios[-1]:.2f}")
    return None
