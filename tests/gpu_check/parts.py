"""What a GPU check does: the device, tests on it, golden results, the sanitizer, benchmarks, comparisons."""
import json
import os
import pathlib
import re
import shutil
import statistics
import tempfile

import comparisons
from frame import FAILED, INCOMPLETE, PASSED, SKIPPED

NO_DEVICE = 7  # the exit code of heed's programs
SANITIZER_FOUND = 99
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


class Pack:
    """The folder of programs, described by its pack.json."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.about = json.loads((self.folder / "pack.json").read_text())
        self.emulated = self.about["device"] == "emulated"

    def programs(self, role):
        return [self.folder / path for path in self.about["programs"].get(role, [])]

    def program(self, role):
        found = self.programs(role)
        if len(found) != 1:
            raise ValueError(f"the pack has {len(found)} programs with the role '{role}'")
        return found[0]


def device(pack, part):
    """Records what the device is; the part passes only if there is one."""
    outcome = part.run([pack.program("about")])
    if outcome.code == NO_DEVICE:
        part.record("device", SKIPPED, outcome.last_line())
        return
    if outcome.code != 0:
        part.record("device", FAILED, outcome.last_line())
        return
    about = json.loads(outcome.last_line())
    part.record("device", PASSED, f"{about['name']}, sm_{about['compute_capability']}", about=about)
    if pack.emulated:
        return
    for name, command in (("driver", ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                                      "--format=csv,noheader"]), ("toolkit", ["nvcc", "--version"])):
        if shutil.which(command[0]):
            part.record(name, PASSED, part.run(command, 10).last_line())
        else:
            part.record(name, SKIPPED, f"{command[0]} is not installed")


def read_gtest(path, every_test):
    """Counts the tests of a GoogleTest report; those without the mark of a device count apart, unless every_test."""
    counts = dict(passed=0, skipped=0, failed=0, host=0)
    failures = []
    for suite in json.loads(path.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                counts["failed"] += 1
                failures.append(name)
            elif test.get("result") == "SKIPPED":
                counts["skipped"] += 1
            elif every_test or "device" in test:
                counts["passed"] += 1
            else:
                counts["host"] += 1
    return counts, failures


def run_tests(part, program, every_test):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        outcome = part.run([program, f"--gtest_output=json:{report}"],
                           environment=dict(HEED_ALLOCATOR="plain", HEED_NUM_THREADS="1"))
        if outcome.timed_out:
            return part.record(program.name, INCOMPLETE, "its time ran out")
        if outcome.code == NO_DEVICE:
            return part.record(program.name, SKIPPED, "no device")
        if not report.exists():
            return part.record(program.name, FAILED, f"exit code {outcome.code}: {outcome.last_line()}")
        counts, failures = read_gtest(report, every_test)
    if outcome.code != 0 or failures:
        status, detail = FAILED, ", ".join(failures) or f"exit code {outcome.code}"
    elif counts["passed"]:
        status, detail = PASSED, f"{counts['passed']} on the device"
    else:
        status, detail = SKIPPED, "none of its tests reached the device"
    if counts["skipped"]:
        detail += f", {counts['skipped']} skipped"
    if counts["host"]:
        detail += f", {counts['host']} on the host alone"
    return part.record(program.name, status, detail, seconds=round(outcome.seconds, 1), tests=counts)


def tests(pack, part):
    kernel_tests = pack.programs("kernel_test")
    work = [(program, True) for program in kernel_tests] + [(program, False) for program in pack.programs("test")]
    if not work:
        part.record("tests", FAILED, "the pack holds none")
    part.each(lambda item: run_tests(part, *item), work, workers=max(1, min(8, (os.cpu_count() or 1) // 2)))


def planted_goldens(text):
    """The golden results with the lowest bit of the last word of each line changed."""
    lines = []
    for line in text.splitlines():
        *words, last = line.split()
        lines.append(" ".join([*words, format(int(last, 16) ^ 1, "x")]))
    return "\n".join(lines) + "\n"


def goldens(pack, part):
    program, file = pack.program("goldens"), pack.folder / pack.about["goldens"]
    outcome = part.run([program, "compare", file])
    status = {0: PASSED, None: INCOMPLETE, NO_DEVICE: SKIPPED}.get(outcome.code, FAILED)
    lines = outcome.output.strip().splitlines()
    part.record("instructions", status, "; ".join(lines[-5:]) or "no output", differences=lines[:-1])
    if status == SKIPPED:
        return
    with tempfile.TemporaryDirectory() as folder:
        planted = pathlib.Path(folder) / "planted.txt"
        planted.write_text(planted_goldens(file.read_text()))
        outcome = part.run([program, "compare", planted])
    cases = len(file.read_text().splitlines())
    noticed = outcome.code == 1 and outcome.last_line() == f"{cases} cases, {cases} differ"
    part.record("planted wrong results", PASSED if noticed else FAILED,
                "noticed" if noticed else f"not all noticed: {outcome.last_line()}")


def find_sanitizer():
    for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        for name in ("bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer"):
            if folder and os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
    return shutil.which("compute-sanitizer")


def findings(output):
    """How many the sanitizer found: by its summary, or by what it reported until its time ran out."""
    counts = [int(n) for n in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)]
    reports = re.findall(r"^========= (?:Invalid|Uninitialized|Barrier error|(?:Error|Warning): Race)", output, re.M)
    return max(sum(counts), len(reports))


def sanitized(part, sanitizer, tool, command, seconds=None):
    # Memory filled beforehand would hide from initcheck what was never written.
    environment = {} if tool == "initcheck" else dict(HEED_ALLOCATOR="plain")
    return part.run([sanitizer, "--tool", tool, "--error-exitcode", SANITIZER_FOUND, *command], seconds,
                    dict(environment, HEED_NUM_THREADS="1"))


def found_something(outcome):
    return outcome.code == SANITIZER_FOUND or findings(outcome.output) > 0


def try_canary(part, sanitizer, tool, canary):
    """Whether the tool finds the planted mistake and nothing in the correct kernel."""
    outcome = sanitized(part, sanitizer, tool, [canary, tool], 30)
    if not found_something(outcome) and re.search(r"not supported|unsupported|failed to initiali[sz]e", outcome.output, re.I):
        part.record(f"{tool}: canary", SKIPPED, f"the tool does not work here: {outcome.last_line()}")
        return False
    found = found_something(outcome)
    clean = sanitized(part, sanitizer, tool, [canary, "none"], 30)
    quiet = clean.code == 0 and not found_something(clean)
    detail = "found" if found and quiet else "not found" if not found else "a correct kernel is complained of"
    part.record(f"{tool}: canary", PASSED if found and quiet else FAILED, detail)
    return found and quiet


def sanitizer(pack, part):
    if pack.emulated:
        return part.record("compute-sanitizer", SKIPPED, "the device is emulated")
    program = find_sanitizer()
    if program is None:
        return part.record("compute-sanitizer", SKIPPED, "it is not installed")
    canary = pack.program("canary")
    for number, tool in enumerate(TOOLS):
        if not try_canary(part, program, tool, canary):
            continue
        share = part.left() / (len(TOOLS) - number)
        for test in pack.programs("kernel_test"):
            outcome = sanitized(part, program, tool, [test], share)
            if found_something(outcome):
                status, detail = FAILED, f"{findings(outcome.output)} findings, see the log"
            elif outcome.timed_out:
                status, detail = INCOMPLETE, "its time ran out; nothing was found until then"
            elif outcome.code != 0:
                status, detail = FAILED, f"exit code {outcome.code}: {outcome.last_line()}"
            else:
                status, detail = PASSED, "nothing found"
            part.record(f"{tool}: {test.name}", status, detail, seconds=round(outcome.seconds, 1))
    return None


def time_ours(part, program, name, repetitions=5, seconds=30):
    """The median of a benchmark and its rates, or the Outcome of one that did not work."""
    outcome = part.run([program, f"--benchmark_filter=^{re.escape(name)}$", "--benchmark_format=json",
                        f"--benchmark_repetitions={repetitions}", "--benchmark_min_time=0.05"], seconds)
    start = outcome.output.find("{\n")
    if outcome.code != 0 or start < 0:
        return outcome
    runs = [run for run in json.loads(outcome.output[start:])["benchmarks"] if run.get("run_type") != "aggregate"]
    wrong = [run["error_message"] for run in runs if run.get("error_occurred")]
    if wrong or not runs:
        return type(outcome)(1, wrong[0] if wrong else "no such benchmark", outcome.seconds)
    to_us = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}
    times = [run["real_time"] * to_us[run["time_unit"]] for run in runs]
    rates = {key: statistics.median(run[key] for run in runs) for key in ("bytes_per_second", "flops_per_second")
             if key in runs[0]}
    return dict(microseconds=statistics.median(times), least=min(times), most=max(times), **rates)


def benchmarks(pack, part):
    """Kernel times, beside the copy bandwidth and, where it is there, the rate of cuBLASLt."""
    if pack.emulated:
        return part.record("benchmarks", SKIPPED, "the device is emulated: its times mean nothing")
    peaks = dict(bytes_per_second=("copy", None), flops_per_second=("cublaslt", None))
    # What the others are compared with comes first.
    programs = sorted(pack.programs("bench"), key=lambda p: not re.search("copy|cublaslt", p.name))
    for program in programs:
        listed = part.run([program, "--benchmark_list_tests"], 30)
        if listed.code != 0:
            status = {None: INCOMPLETE, NO_DEVICE: SKIPPED}.get(listed.code, FAILED)
            part.record(program.name, status, listed.last_line())
            continue
        for name in listed.output.split():
            result = time_ours(part, program, name)
            if not isinstance(result, dict):
                part.record(name, INCOMPLETE if result.timed_out else FAILED, result.last_line())
                continue
            detail = f"{result['microseconds']:.1f} us"
            for key, unit, scale in (("bytes_per_second", "GB/s", 1e9), ("flops_per_second", "TFLOP/s", 1e12)):
                if key not in result:
                    continue
                reference, peak = peaks[key]
                if name.startswith(reference) and (peak is None or result[key] > peak):
                    peaks[key] = reference, result[key]
                detail += f", {result[key] / scale:.1f} {unit}"
                if peak:
                    result["percent_of_" + reference] = round(100 * result[key] / peak, 1)
                    detail += f" ({100 * result[key] / peak:.0f} % of {reference})"
            part.record(name, PASSED, detail, **result)
    return None


def compare(pack, part):
    """The rows of comparisons.py against PyTorch, in turn in the same minutes."""
    if pack.emulated:
        return part.record("PyTorch", SKIPPED, "the device is emulated")
    programs = {program.name: program for program in pack.programs("bench")}
    with comparisons.Peer(part.left) as peer:
        if peer.about is None:
            return part.record("PyTorch", SKIPPED, peer.reason)
        part.record("PyTorch", PASSED, peer.about["version"])
        for row in comparisons.ROWS:
            compare_row(part, peer, programs[row.program], row)
    return None


def compare_row(part, peer, program, row, rounds=3):
    """Heed and each variant of PyTorch in turn; the ratios are those of the rounds."""
    ours, theirs, problems = [], {variant: [] for variant in row.variants}, {}
    for _ in range(rounds):
        mine = time_ours(part, program, row.benchmark, repetitions=3)
        if not isinstance(mine, dict):
            part.record(row.benchmark, INCOMPLETE if mine.timed_out else FAILED, mine.last_line())
            return
        ours.append(mine["microseconds"])
        for variant, times in theirs.items():
            if variant not in problems:
                answer = peer.time(row, variant)
                if "error" in answer:
                    problems[variant] = INCOMPLETE if answer.get("timed_out") else SKIPPED, answer["error"]
                else:
                    times.append(answer["microseconds"])
    for variant, times in theirs.items():
        name = f"{row.benchmark} and PyTorch {variant}"
        if variant in problems:
            part.record(name, *problems[variant])
        else:
            record_ratio(part, name, ours, times)
    worked = [times for variant, times in theirs.items() if variant not in problems]
    if len(worked) > 1:
        record_ratio(part, f"{row.benchmark} and PyTorch at its best", ours, min(worked, key=statistics.median))


def record_ratio(part, name, ours, theirs):
    ratios = [b / a for a, b in zip(ours, theirs)]
    part.record(name, PASSED, f"{statistics.median(ours):.1f} us, PyTorch {statistics.median(theirs):.1f} us: "
                f"{statistics.median(ratios):.2f} times as long", ours=ours, theirs=theirs, ratios=ratios)


# (name, function, seconds): 9 minutes in all.
PARTS = (("device", device, 20), ("tests", tests, 130), ("goldens", goldens, 20), ("sanitizer", sanitizer, 130),
         ("benchmarks", benchmarks, 110), ("comparisons", compare, 130))
