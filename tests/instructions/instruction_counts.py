#!/usr/bin/env python3
"""Counts the instructions of each piece of work in counted_work under valgrind and compares them with their limits.

    instruction_counts.py PROGRAM LIMITS --compiler NAME [--write]

A count that is 5 % or more above its limit fails: a slowdown that needs no clock to be seen, and no quiet machine. The
work runs in f32 on one thread with the AVX2 code, which valgrind knows; products of matrices are left out, since they are
other code on other machines. --write makes the counts the limits. They belong to the compiler that is named in the file:
with another one, or without valgrind, nothing is compared (exit code 77).
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SLOWDOWN = 1.05
GAIN = 0.95
SKIPPED = 77

# Functions of matrix products, whose own instructions do not count: packing, tiles, and oneDNN.
PRODUCT = re.compile(r"[gG]emm|::micro<|::pack_[ab]|Product<|dnnl")
REGION = "heed_counted"


def parse_profile(text):
    """(instructions outside of products, instructions of products) of one callgrind profile."""
    names = {}
    counted = product = 0
    in_product = after_calls = False
    for line in text.splitlines():
        if line.startswith("fn="):
            number, _, name = line[3:].partition(" ")
            if name:
                names[number] = name
            in_product = bool(PRODUCT.search(names[number]))
        elif line.startswith("cfn="):
            number, _, name = line[4:].partition(" ")
            if name:
                names[number] = name
        elif line.startswith("calls="):
            after_calls = True  # the next line has the callee's instructions, which stand at the callee too
        elif line[:1].isdigit() or line[:1] in "+-*":
            cost = line.split()[1:]  # nothing stands for 0
            if cost and not after_calls:
                instructions = int(cost[0])
                counted, product = (counted, product + instructions) if in_product else (counted + instructions, product)
            after_calls = False
    return counted, product


def count(program):
    """{name: instructions} of what the program does, in its order."""
    environment = dict(os.environ, HEED_ISA="avx2", HEED_NUM_THREADS="1", HEED_ALLOCATOR="caching")
    environment.pop("HEED_PROFILE", None)
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder, "profile")
        command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={profile}",
                   f"--toggle-collect={REGION}", f"--dump-after={REGION}", program]
        names = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        profiles = [pathlib.Path(f"{profile}.{i + 1}") for i in range(len(names))]
        if not names or not all(p.exists() for p in profiles):
            sys.exit(f"instruction_counts: {len(names)} pieces of work ran, but callgrind did not profile each of them")
        return {name: parse_profile(p.read_text())[0] for name, p in zip(names, profiles)}


def read_limits(text):
    """The compiler that the limits belong to, and {name: instructions}."""
    compiler = re.search(r"^# Compiler: (.*)$", text, re.M)
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return compiler[1] if compiler else "", {name: int(number.replace(",", "")) for number, name in lines}


def write_limits(counts, compiler):
    lines = [f"{number:>12,}  {name}" for name, number in counts.items()]
    return "\n".join(["# Instructions of each piece of work in counted_work.cpp; written by the target",
                      "# write_instruction_limits, checked by instruction_counts.py.", f"# Compiler: {compiler}", *lines, ""])


def complaints(counts, limits):
    """What is wrong, one message each."""
    found = [f"{name}: {number:,} instructions, {100 * number / limits[name] - 100:.1f} % more than its limit of "
             f"{limits[name]:,}" for name, number in counts.items() if name in limits and number >= SLOWDOWN * limits[name]]
    found += [f"{name}: has no limit" for name in counts if name not in limits]
    return found + [f"{name}: has a limit but did not run" for name in limits if name not in counts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("limits", type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        print("instruction_counts: valgrind is not installed")
        sys.exit(SKIPPED)
    if arguments.write:
        arguments.limits.write_text(write_limits(count(arguments.program), arguments.compiler))
        return
    compiler, limits = read_limits(arguments.limits.read_text())
    if compiler != arguments.compiler:
        print(f"instruction_counts: the limits are those of {compiler}, and this is {arguments.compiler}")
        sys.exit(SKIPPED)
    counts = count(arguments.program)
    for name, number in counts.items():
        note = "   (the limit can be lowered)" if name in limits and number <= GAIN * limits[name] else ""
        print(f"{number:>12,}  of {limits.get(name, 0):>12,}  {name}{note}")
    found = complaints(counts, limits)
    if found:
        sys.exit("\n".join(["", *found, "If this is meant, the target write_instruction_limits makes the counts the limits."]))


if __name__ == "__main__":
    main()
