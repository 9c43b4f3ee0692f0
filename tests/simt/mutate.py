#!/usr/bin/env python3
"""Measures the tests of a CUDA kernel: changes one line of it at a time and counts the changes that some test notices.

    tests/simt/mutate.py BUILD_FOLDER [--kernel layer_norm] [--limit N] [--filter GTEST_FILTER]

BUILD_FOLDER is a configured build whose simt_kernels_test and simt_kernels_race_test are up to date. The source is put
back whatever happens; a mutant that does not compile is not counted.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("simt_kernels_test", "simt_kernels_race_test")
# (pattern, replacement): each match in a line of code is one mutant.
RULES = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" < ", " <= "), (r" <= ", " < "),
    (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" \+= ", " = "),
    (r"\b0\.0f\b", "1.0f"), (r"\b1\.0f\b", "2.0f"), (r"^\s*__syncthreads\(\);.*", ""), (r"^\s*if \(.*\) return;", ""),
]


def mutants(text):
    """Yields (line number, new text of the file) for every change to a line of code below the includes."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if not code.strip() or code.startswith(("#", "template", "using", "namespace", "struct")):
            continue
        for pattern, replacement in RULES:
            for match in re.finditer(pattern, code):
                changed = line[:match.start()] + replacement + line[match.end():]
                yield number + 1, changed.strip(), "\n".join(lines[:number] + [changed] + lines[number + 1:])


def run(command, seconds, environment=None):
    try:
        return subprocess.run(command, capture_output=True, timeout=seconds, env=environment).returncode
    except subprocess.TimeoutExpired:
        return -1


def noticed_by(build, gtest_filter):
    """The first program that fails, "" if none does, None if the source does not compile."""
    environment = dict(os.environ, HEED_ALLOCATOR="plain", HEED_SIMT_SCHEDULES="two")
    for program in PROGRAMS:
        if run(["ninja", "-C", build, program], 600) != 0:
            return None
        if run([build.resolve() / "bin" / program, f"--gtest_filter={gtest_filter}"], 300, environment) != 0:
            return program
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kernel", default="layer_norm")
    parser.add_argument("--limit", type=int, default=0, help="at most this many mutants, spread over the file")
    parser.add_argument("--filter", default="*LayerNorm*")
    options = parser.parse_args()
    source = ROOT / "kernels" / "cuda" / f"{options.kernel}.cu"
    original = source.read_text()
    todo = list(mutants(original))
    if options.limit and len(todo) > options.limit:
        todo = todo[::-(-len(todo) // options.limit)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if noticed_by(options.build, options.filter) != "":
        sys.exit("the unchanged kernel does not build or does not pass")
    found = compiled = 0
    try:
        for number, line, text in todo:
            source.write_text(text)
            by = noticed_by(options.build, options.filter)
            if by is None:
                continue
            compiled += 1
            found += by != ""
            print(f"{number:4d}  {by or 'NOT NOTICED':24s}  {line}", flush=True)
    finally:
        source.write_text(original)
    print(f"{found} of {compiled} mutants noticed")
    return 0 if found == compiled else 1


if __name__ == "__main__":
    sys.exit(main())
