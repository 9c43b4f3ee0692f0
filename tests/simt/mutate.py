#!/usr/bin/env python3
"""Measures the tests of a CUDA kernel: changes one line of it at a time and counts the changes that some test notices.

    tests/simt/mutate.py BUILD [--kernel layer_norm] [--filter '*LayerNorm*'] [--limit N] [--jobs 2]

BUILD is a configured build whose simt_kernels_test, simt_kernels_address_test and simt_kernels_race_test are up to date.
Mutants are compiled in a temporary folder with the build's own commands; the sources are not touched. A mutant that does
not compile, or is known to compute the same, is not counted; one that never ends is noticed. Exit code 0 if at least 95 %
are noticed.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The cheapest first: most mutants do not get further.
VARIANTS = ("", "_address", "_race")
TARGET = 0.95
# (pattern, replacement): each match in a line of code is one mutant.
RULES = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" < ", " <= "), (r" <= ", " < "),
    (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+= ", " = "), (r"\b0\.0f\b", "1.0f"), (r"\b1\.0f\b", "2.0f"), (r"^\s*__syncthreads\(\);.*", ""),
    (r"^\s*if \(.*\) return;", ""),
]
# Changed lines that compute the same, and why.
EQUIVALENT = {
    "const PartialSums sums = blockIdx.y != 0 ? args.sums[0] : args.sums[1];": "only which block takes which sum",
    "const dim3 block(kCols, static_cast<unsigned>(count <= kSlices ? count : kSlices));": "the smaller of two equals",
}


def mutants(text):
    """Yields (line number, the changed line, the changed text) for every change to a line of code below the includes."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if not code.strip() or code.startswith(("#", "template", "using", "namespace", "struct")):
            continue
        for pattern, replacement in RULES:
            for match in re.finditer(pattern, code):
                changed = line[:match.start()] + replacement + line[match.end():]
                if changed.strip() in EQUIVALENT:
                    continue
                yield number + 1, changed.strip() or f"(removed: {line.strip()})", \
                    "\n".join(lines[:number] + [changed] + lines[number + 1:])


class Variant:
    """How one build of the tests is made from a changed source."""

    def __init__(self, build, name, source, gtest_filter):
        self.build, self.filter = build, gtest_filter
        self.name = f"simt_kernels{name}_test"
        library = f"heed_emulated_kernels{name}.dir"
        commands = [entry for entry in json.loads((build / "compile_commands.json").read_text())
                    if pathlib.Path(entry["file"]) == source and library in entry["command"]]
        if len(commands) != 1:
            sys.exit(f"{build} does not compile {source.name} for {self.name}")
        self.compile = [word for word in shlex.split(commands[0]["command"])]
        self.object = self.compile[self.compile.index("-o") + 1]
        output = subprocess.run(["ninja", "-C", build, "-t", "commands", self.name], check=True, text=True,
                                capture_output=True).stdout.strip().splitlines()
        self.link = shlex.split(output[-1].removeprefix(": && ").removesuffix(" && :"))

    def make(self, folder, source):
        """The test program with this source in place of the original; None if it does not compile."""
        built, program = folder / (self.name + ".o"), folder / self.name
        compile_ = [*self.compile, "-O1", "-w"]
        compile_[compile_.index("-o") + 1] = str(built)
        compile_[compile_.index("-c") + 1] = str(source)
        link = [str(built) if word == self.object else word for word in self.link]
        link[link.index("-o") + 1] = str(program)
        for command in (compile_, link):
            if subprocess.run(command, cwd=self.build, capture_output=True, check=False).returncode != 0:
                return None
        return program

    def passes(self, program, seconds):
        environment = dict(os.environ, HEED_ALLOCATOR="plain", HEED_SIMT_SCHEDULES="two", HEED_NUM_THREADS="1")
        command = [program, f"--gtest_filter={self.filter}", "--gtest_fail_fast"]
        try:
            return subprocess.run(command, capture_output=True, timeout=seconds, env=environment, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def noticed_by(variants, name, text, seconds):
    """The first program that fails, "" if none does, None if the source does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / name
        source.write_text(text)
        for variant in variants:
            program = variant.make(pathlib.Path(folder), source)
            if program is None:
                return None
            if not variant.passes(program, seconds):
                return variant.name
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kernel", default="layer_norm")
    parser.add_argument("--filter", default="*LayerNorm*")
    parser.add_argument("--limit", type=int, default=0, help="at most this many mutants, spread over the file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=240, help="a test program that runs longer is one that never ends")
    options = parser.parse_args()
    source = ROOT / "kernels" / "cuda" / f"{options.kernel}.cu"
    variants = [Variant(options.build.resolve(), name, source, options.filter) for name in VARIANTS]
    original = source.read_text()
    todo = list(mutants(original))
    if options.limit and len(todo) > options.limit:
        todo = [todo[i * len(todo) // options.limit] for i in range(options.limit)]
    if noticed_by(variants, source.name, original, options.seconds) != "":
        sys.exit("the unchanged kernel does not build or does not pass")
    found = compiled = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda mutant: noticed_by(variants, source.name, mutant[2], options.seconds), todo)
        for (number, line, _), by in zip(todo, results):
            if by is None:
                continue
            compiled += 1
            found += by != ""
            print(f"{number:4d}  {by or 'NOT NOTICED':26s}  {line}", flush=True)
    print(f"{found} of {compiled} mutants of {source.name} noticed, {len(todo) - compiled} do not compile")
    return 0 if found >= TARGET * compiled else 1


if __name__ == "__main__":
    sys.exit(main())
