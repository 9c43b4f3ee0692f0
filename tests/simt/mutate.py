#!/usr/bin/env python3
"""Measures the tests of a CUDA kernel: changes one line of it at a time and counts the changes that some test notices.

    tests/simt/mutate.py BUILD [--file norm/norm.cu] [--filter '*Norm*'] [--also PROGRAM] [--users FILE,FILE]
                         [--lines N,N] [--builds address] [--limit N] [--jobs 2]

BUILD is configured with HEED_CHECKED_KERNELS; its simt_kernels_test, simt_kernels_address_test, simt_kernels_race_test and
each further PROGRAM are up to date. A changed header need only be compiled into some of the sources that include it: what the tests
of these notice is noticed.
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
# The objects of kernels that a program is linked with, where they are not those of the library.
OBJECTS = {"simt_cublas_test": ["heed_cublas_kernels"], "key_tasks_test": []}
LIBRARY = ["heed_kernels", "heed_cuda_on_emulator"]
# The builds of the kernels' tests and how their programs' names tell them apart; the cheapest first: most mutants do not
# get further.
BUILDS = {"plain": "", "address": "_address", "race": "_race"}
TARGET = 0.95
# (pattern, replacement): each match in a line of code is one mutant.
RULES = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" < ", " <= "), (r" <= ", " < "),
    (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+= ", " = "), (r"\b0\.0f\b", "1.0f"), (r"\b1\.0f\b", "2.0f"), (r"^\s*__syncthreads\(\);.*", ""),
    (r"^\s*if \(.*\) return;", ""),
    (r"^\s*simt::(mbarrier|wgmma|fence_async|cluster_sync)\w*(<\w+>)?\([^;]*\);.*", ""), (r"wgmma_wait<0>", "wgmma_wait<1>"),
    (r"^\s*\S+\.(wait|wait_free|done)\(.*\);.*", ""),
]


def read_excuses(text):
    """{changed line that computes the same: why}, from lines with a tab between them; # begins a comment."""
    return dict(line.split("\t") for line in text.splitlines() if not line.startswith("#"))


EQUIVALENT = read_excuses((pathlib.Path(__file__).parent / "equivalent_mutants.tsv").read_text())


def mutants(text):
    """Yields (line number, the changed line, the changed text) for every change to a line of code."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if not code.strip() or code.startswith(("#", "template", "using", "namespace", "struct")) or "__launch_bounds__" in code:
            continue
        for pattern, replacement in RULES:
            for match in re.finditer(pattern, code):
                changed = line[:match.start()] + replacement + line[match.end():]
                label = changed.strip() if changed.split("//")[0].strip() else f"(removed: {line.strip()})"
                yield number + 1, label, "\n".join(lines[:number] + [changed] + lines[number + 1:])


class Program:
    """How a test program is made from a changed file: a kernel's source, or a header of some."""

    def __init__(self, build, name, objects, file, gtest_filter):
        self.build, self.name, self.filter = build, name, gtest_filter
        self.is_header = file.suffix in (".h", ".cuh")
        self.compile = objects
        output = subprocess.run(["ninja", "-C", build, "-t", "commands", name], check=True, text=True,
                                capture_output=True).stdout.strip().splitlines()
        self.link = shlex.split(output[-1].removeprefix(": && ").removesuffix(" && :"))

    def make(self, folder, changed):
        """The program with the changed file in place of the original; None if it does not compile."""
        link, fresh = list(self.link), []
        for command in self.compile:
            original = command[command.index("-o") + 1]
            built = str(folder / original.replace("/", "_"))
            compile_ = [*command, *([] if "-O0" in command else ["-O1"]), "-w"]
            compile_.insert(next(i for i, word in enumerate(command) if word.startswith("-")), f"-I{folder}")
            compile_[compile_.index("-o") + 1] = built
            if not self.is_header:
                compile_[compile_.index("-c") + 1] = str(changed)
            if original in link:
                link[link.index(original)] = built
            else:
                fresh.append(built)  # before the archive that has the original
            if os.path.exists(built):  # another program has compiled it
                continue
            if subprocess.run(compile_, cwd=self.build, capture_output=True, check=False).returncode != 0:
                return None
        program = folder / self.name
        link[link.index("-o") + 1] = str(program)
        first = next(i for i, word in enumerate(link) if word.endswith(".o"))
        link[first:first] = fresh
        if subprocess.run(link, cwd=self.build, capture_output=True, check=False).returncode != 0:
            return None
        return program

    def passes(self, program, seconds):
        environment = dict(os.environ, HEED_ALLOCATOR="plain", HEED_NUM_THREADS="1")
        command = [program, f"--gtest_filter={self.filter}", "--gtest_fail_fast"]
        try:
            return subprocess.run(command, capture_output=True, timeout=seconds, env=environment, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def objects_with(build, file, sources):
    """The compile commands of the objects that contain `file`, by ninja's record of the last build; where `sources` are
    named, of those made from one of them."""
    users, object_ = set(), None
    for line in subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                               capture_output=True).stdout.splitlines():
        if not line.startswith(" "):
            object_ = line.split(":")[0]
        elif line.rstrip().endswith(file.name) and (build / line.strip()).resolve() == file:
            users.add(object_)
    commands = [shlex.split(entry["command"]) for entry in json.loads((build / "compile_commands.json").read_text())]
    return [command for command in commands if command[command.index("-o") + 1] in users
            and (not sources or pathlib.Path(command[command.index("-c") + 1]).name in sources)]


def programs(options, file):
    """The further programs asked for, which know what the results should be, and the kernels' tests in their builds."""
    users = objects_with(options.build, file, options.users)

    def program(name, libraries, gtest_filter):
        folders = [f"/{folder}.dir/" for folder in (name, *libraries)]
        objects = [command for command in users if any(folder in command[command.index("-o") + 1] for folder in folders)]
        return Program(options.build, name, objects, file, gtest_filter) if objects else None

    kernels = ["heed_emulated_kernels", *LIBRARY]  # the first where the library itself is not emulated
    found = [*(program(name, OBJECTS.get(name, LIBRARY), "*") for name in options.also),
             *(program(f"simt_kernels{name}_test", [f"heed_emulated_kernels{name}"] if name else kernels, options.filter)
               for name in (BUILDS[build] for build in options.builds))]
    found = [test for test in found if test is not None]
    if not found:
        sys.exit(f"none of the programs in {options.build} is built with {file.name}")
    return found


def noticed_by(tests, name, text, seconds):
    """The first program that fails, "" if none does, None if the file does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        changed = pathlib.Path(folder) / "heed" / "kernels" / "cuda" / name
        changed.parent.mkdir(parents=True)
        changed.write_text(text)
        for test in tests:
            program = test.make(pathlib.Path(folder), changed)
            if program is None:
                return None
            if not test.passes(program, seconds):
                return test.name
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--file", default="norm/norm.cu", help="of kernels/cuda")
    parser.add_argument("--filter", default="*Norm*", help="which of the kernels' tests are run")
    parser.add_argument("--also", action="append", default=[], metavar="PROGRAM", help="a further test, of the operation")
    parser.add_argument("--users", type=lambda names: names.split(","), default=[], metavar="FILE,FILE",
                        help="of the sources that include a header, those to be compiled with it")
    parser.add_argument("--lines", type=lambda numbers: [int(number) for number in numbers.split(",")], default=[],
                        metavar="N,N", help="only mutants of these lines, as those that have survived before")
    parser.add_argument("--builds", type=lambda names: names.split(","), default=list(BUILDS), metavar="BUILD,BUILD",
                        help=f"of the kernels' tests: {', '.join(BUILDS)} (all)")
    parser.add_argument("--limit", type=int, default=0, help="at most this many mutants, spread over the file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=240, help="a test program that runs longer is one that never ends")
    options = parser.parse_args()
    source = ROOT / "kernels" / "cuda" / options.file
    tests = programs(options, source)
    original = source.read_text()
    todo = [mutant for mutant in mutants(original)
            if mutant[1] not in EQUIVALENT and (not options.lines or mutant[0] in options.lines)]
    if options.limit and len(todo) > options.limit:
        todo = [todo[i * len(todo) // options.limit] for i in range(options.limit)]
    if noticed_by(tests, options.file, original, options.seconds) != "":
        sys.exit("the unchanged kernel does not build or does not pass")
    found = compiled = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda mutant: noticed_by(tests, options.file, mutant[2], options.seconds), todo)
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
