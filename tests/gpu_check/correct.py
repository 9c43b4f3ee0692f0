"""What a GPU check verifies: that there is a device, its results of single instructions, the tests."""
import json
import os
import pathlib
import re
import shutil
import tempfile

import gtest
from frame import FAILED, INCOMPLETE, PASSED, SKIPPED
from gtest import NO_DEVICE

RERUNS = 24  # tests run again alone, at most
KEPT_FOR_RERUNS = 0.22  # of the part's time


def device(pack, part):
    """Records what the device is; the part passes only if there is one."""
    outcome = part.run([pack.program("about")])
    if outcome.code == NO_DEVICE:
        part.record("device", SKIPPED, outcome.last_line())
        return
    try:
        about = next(json.loads(line) for line in outcome.output.splitlines() if line.startswith("{"))
    except (StopIteration, ValueError):
        about = None
    if outcome.code != 0 or about is None:
        part.record("device", FAILED, f"{outcome.how()}: {outcome.last_line()}")
        return
    part.record("device", PASSED, f"{about['name']}, sm_{about['compute_capability']}", about=about)
    if pack.emulated:
        return
    asked = "name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.sm"
    for name, command in (("driver", ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]),
                          ("toolkit", ["nvcc", "--version"])):
        if shutil.which(command[0]):
            part.record(name, PASSED, part.run(command, 5).last_line())
        else:
            part.record(name, SKIPPED, f"{command[0]} is not installed")


NOT_COMPARED = re.compile(r"(\d+) cases need compute capability 9\.0: not compared")


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
    left_out = sum(int(match[1]) for match in map(NOT_COMPARED.fullmatch, lines) if match)
    differences = [line for line in lines[:-1] if not NOT_COMPARED.fullmatch(line)]
    part.record("instructions", status, "; ".join(lines[-5:]) or outcome.how(), differences=differences)
    if status in (SKIPPED, INCOMPLETE):
        return
    with tempfile.TemporaryDirectory() as folder:
        planted = pathlib.Path(folder) / "planted.txt"
        planted.write_text(planted_goldens(file.read_text()))
        outcome = part.run([program, "compare", planted])
    cases = len(file.read_text().splitlines()) - left_out
    noticed = outcome.code == 1 and f"{cases} cases, {cases} differ" in outcome.output.splitlines()
    part.record("planted wrong results", PASSED if noticed else FAILED,
                "noticed" if noticed else f"not all noticed: {outcome.last_line()}")


def workers():
    """How many test programs run at a time: a GPU has time for several, their references need processors."""
    return max(2, min(8, (os.cpu_count() or 1) // 2))


def tests(pack, part):
    """Every test program; those tests that fail once more alone, when all programs have had their turn."""
    programs = [gtest.Program(path, every_test=True) for path in pack.programs("kernel_test")]
    programs += [gtest.Program(path, every_test=False) for path in pack.programs("test")]
    if not programs:
        part.record("tests", FAILED, "the pack holds none")

    def run(program):
        program.run(part, reserve=KEPT_FOR_RERUNS * part.seconds)
        record(part, program)

    part.each(run, programs, workers())
    again = [(program, name) for program in programs for name in program.bad()]
    part.each(lambda item: run_alone(part, *item), again[:RERUNS], workers())
    if len(again) > RERUNS:
        part.record("alone", INCOMPLETE, f"{len(again) - RERUNS} more failed tests were not run again")


def record(part, program):
    counts = program.counts()
    if program.problem == "no device":
        return part.record(program.path.name, SKIPPED, "no device")
    pieces = [f"{counts['passed']} passed on the device"] if counts["passed"] else []
    words = dict(failed="failed", skipped="skipped", host="on the host alone", missing="not run")
    pieces += [f"{counts[key]} {text}" for key, text in words.items() if counts[key]]
    if program.problem or counts["failed"]:
        status = FAILED
        pieces += [program.problem] if program.problem else []
    elif counts["missing"] or not program.results and program.count != 0:
        status = INCOMPLETE
        pieces += [] if counts["missing"] else ["its time ran out before its first test ended"]
    else:
        status = PASSED if counts["passed"] else SKIPPED
        pieces += [] if counts["passed"] else ["none of its tests reached the device"]
    return part.record(program.path.name, status, ", ".join(pieces), tests=counts)


def run_alone(part, program, name):
    how, lines = program.alone(part, name)
    what = f": {' | '.join(lines[:3])}" if lines else ""
    status = {gtest.PASSED: PASSED, gtest.NO_TIME: INCOMPLETE}.get(how, FAILED)
    part.record(f"{program.path.name} {name} alone, with blocking launches", status, how + what, output=lines)
