#!/usr/bin/env python3
"""Reads the machine code (SASS) of the memory-bound kernels and fails where one that works on vectors moves less than 16
bytes an access, or keeps something in local memory.

    machine_code.py FOLDER [--cuobjdump PROGRAM]     FOLDER holds the kernels' objects, as CMake builds them

Their templates say how many elements an access is of: RowLayout<threads, elements, …>, or the last number of the others.
Instances of one element are for rows that lie or end anywhere.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ARCHITECTURE = "sm_90a"
OBJECTS = ("activation", "cross_entropy", "embedding", "norm", "norm_backward", "optimizer", "rotary", "softmax")
VECTOR = re.compile(r"RowLayoutILi\d+ELi(?:4|8)E|^(?!.*RowLayout).*[EI]Li(?:4|8)EEE?v")
REDUCES = re.compile(r"norm_kernelILi4E.*GradientPart")  # a sum of squares: nothing to store

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ACCESS = re.compile(r"\b(LDG|STG|LDGSTS|LDL|STL)((?:\.[A-Z0-9_]+)*)\s")


def functions(text):
    """The accesses of each function: how often (instruction, is it of 16 bytes) stands in it."""
    found, current = {}, None
    for line in text.splitlines():
        if match := FUNCTION.search(line):
            current = found.setdefault(match[1], collections.Counter())
        elif (match := ACCESS.search(line)) and current is not None:
            current[match[1], ".128" in match[2]] += 1
    return found


def complaints(name, found):
    """What is wrong with the functions of an object, one a line."""
    wrong, vectors = [], 0
    for function, accesses in found.items():
        if accesses["LDL", False] + accesses["STL", False] + accesses["LDL", True] + accesses["STL", True]:
            wrong.append(f"{name}: {function} uses local memory")
        if not VECTOR.search(function):
            continue
        vectors += 1
        if not accesses["LDG", True] + accesses["LDGSTS", True]:
            wrong.append(f"{name}: {function} loads no 16 bytes at once")
        if not accesses["STG", True] and not REDUCES.search(function):
            wrong.append(f"{name}: {function} stores no 16 bytes at once")
    if not vectors:
        wrong.append(f"{name}: no function works on vectors, by its name")
    return wrong


def disassembled(cuobjdump, file):
    return subprocess.run([cuobjdump, "-sass", "-arch", ARCHITECTURE, str(file)], check=True, text=True,
                          capture_output=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    options = parser.parse_args()
    objects = {name: list(options.folder.rglob(f"{name}.cu.o")) for name in OBJECTS}
    missing = [name for name, files in objects.items() if len(files) != 1]
    if missing:
        sys.exit(f"not one object each of {', '.join(missing)} in {options.folder}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda files: disassembled(options.cuobjdump, files[0]), objects.values())
    wrong, count = [], 0
    for name, text in zip(objects, texts):
        found = functions(text)
        wrong += complaints(name, found)
        count += sum(1 for function in found if VECTOR.search(function))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"   {count} instances of kernels load and store 16 bytes at once, none uses local memory")


if __name__ == "__main__":
    main()
