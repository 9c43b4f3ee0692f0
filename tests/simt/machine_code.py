#!/usr/bin/env python3
"""Reads the machine code (SASS) of the memory-bound kernels and fails where one that works on vectors moves less than 16
bytes an access, stores single elements beside them, or keeps something in local memory; where a kernel that may begin
before the one in front of it has ended does not wait for that before it uses memory; where the portable flash attention
needs too many instructions for its matrix products; and where docs/kernels/predicted.md is out of date (ceilings.py).

    machine_code.py FOLDER [--cuobjdump PROGRAM]     FOLDER holds the kernels' objects, as CMake builds them

Their templates say how many elements an access is of: RowLayout<threads, elements, …>, or the last number of the others.
Instances of one element are for rows that lie or end anywhere; SCALAR has kernels without a vector form.
"""
import argparse
import collections
import pathlib
import re
import sys

import ceilings
import planned_kernels
import sass

OBJECTS = ("activation", "column_sums", "cross_entropy", "dropout", "embedding", "linear", "norm", "norm_backward", "optimizer",
           "rotary", "softmax", "sorted_rows")
DEPENDENT_OBJECTS = ("activation", "attention_short", "column_sums", "cross_entropy", "embedding", "linear", "norm",
                     "norm_backward", "optimizer", "report", "sorted_rows")
VECTOR = re.compile(r"RowLayoutILi\d+ELi(?:4|8)E|^(?!.*RowLayout).*[EIf]Li(?:4|8)EEE?v")
SINGLE = re.compile(r"RowLayoutILi\d+ELi1E|^(?!.*RowLayout).*[EIf]Li1EEE?v")
SCALAR = re.compile(r"\d(?:"
                    r"add_partials|column|"  # a column a thread, so that there are more: a warp's lie side by side
                    r"count|loss|"  # one block, which adds up a number of each row
                    r"advance_steps|set_rate"  # one number, or one of each parameter
                    r")_kernel")
REDUCES = re.compile(r"norm_kernelILi4E.*NormWork")  # a sum of squares: nothing to store
MOST_NARROW_STORES = 3  # of at most 4 bytes in an instance that stores 16: four may be what 16 bytes have become

DEPENDENT = re.compile(r"4simt9DependentI")  # among the parameters

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ACCESS = re.compile(r"\b(LDG|STG|LDGSTS|LDL|STL)((?:\.[A-Z0-9_]+)*)\s")
BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}  # of an access; 4 where it says nothing
GLOBAL = re.compile(r"\b(?:LD|ST|LDG|STG|LDGSTS|ATOM|ATOMG|RED|REDG|UTMALDG)(?:\.[A-Z0-9_]+)*\s")
WAIT = re.compile(r"\bACQBULK\b")  # griddepcontrol.wait


# The portable flash attention without dropout, at the widths of docs/kernels/attention.md for which its measure is promised.
FLASH = {launch.function: launch for direction in ("forward", "backward") for width in (64, 128)
         for launch in planned_kernels.flash_attention(direction, planned_kernels.Attention(1, 1, 4096, width, False)).launches}
FLASH_OBJECTS = sorted({launch.object for launch in FLASH.values()})
FLASH_ARCHITECTURES = ("sm_80", "sm_90a")
MOST_FOR_A_PRODUCT = 5.0  # instructions for each HMMA


def functions(text):
    """The accesses of each function: how often (instruction, bytes) stands in it; how often "wait" does, and how many
    accesses to global memory, "early", before the first."""
    found, current = {}, None
    for line in text.splitlines():
        if match := FUNCTION.search(line):
            current = found.setdefault(match[1], collections.Counter())
            continue
        if current is None:
            continue
        if WAIT.search(line):
            current["wait"] += 1
        elif GLOBAL.search(line) and not current["wait"]:
            current["early"] += 1
        if match := ACCESS.search(line):
            current[match[1], next((BYTES[part] for part in match[2].split(".") if part in BYTES), 4)] += 1
    return found


def complaints(name, found):
    """What is wrong with the functions of an object, one a line."""
    wrong, vectors = [], 0
    for function, accesses in found.items():
        if any(access[0] in ("LDL", "STL") for access in accesses):
            wrong.append(f"{name}: {function} uses local memory")
        if SCALAR.search(function) or SINGLE.search(function):
            continue
        if not VECTOR.search(function):
            wrong.append(f"{name}: {function} says nothing of vectors, by its name")
            continue
        vectors += 1
        if not accesses["LDG", 16] + accesses["LDGSTS", 16]:
            wrong.append(f"{name}: {function} loads no 16 bytes at once")
        if not accesses["STG", 16] and not REDUCES.search(function):
            wrong.append(f"{name}: {function} stores no 16 bytes at once")
        narrow = sum(accesses["STG", size] for size in (1, 2, 4))
        if accesses["STG", 16] and narrow > MOST_NARROW_STORES:
            wrong.append(f"{name}: {function} stores at most 4 bytes at {narrow} places, beside 16 at once")
    if not vectors and not (found and all(map(SCALAR.search, found))):
        wrong.append(f"{name}: no function works on vectors, by its name")
    return wrong


def early_accesses(name, found):
    """What is wrong with the kernels of an object that have to wait for those in front of them, one a line."""
    dependent = {function: accesses for function, accesses in found.items() if DEPENDENT.search(function)}
    wrong = [f"{name}: {function} does not wait for the kernels in front of it"
             for function, accesses in dependent.items() if not accesses["wait"]]
    wrong += [f"{name}: {function} uses memory before it waits for the kernels in front of it"
              for function, accesses in dependent.items() if accesses["wait"] and accesses["early"]]
    return wrong if dependent else [f"{name}: no kernel has to wait, by its name"]


def for_each_product(graph, loop):
    """Instructions that a planned loop executes for each of its matrix products."""
    code = sass.executed_in(graph, loop)
    return sum(times for _, times in code) / sum(times for instruction, times in code if sass.matches("HMMA", instruction))


def costly_products(architecture, graph_of, launches=FLASH.values()):
    """(what is wrong with the loops over tiles that need no masks, one a line, [instructions for each HMMA])"""
    wrong, found = [], []
    for launch in launches:
        kernel, width = re.search(r"(\w+)ILi(\d+)E", launch.function).groups()
        name = f"{launch.object}: {kernel} of width {width}, {architecture}:"
        try:
            found.append(for_each_product(graph_of(launch.object, launch.function), launch.plan.loops[0]))
        except ValueError as error:
            wrong.append(f"{name} {error}")
            continue
        if found[-1] > MOST_FOR_A_PRODUCT:
            wrong.append(f"{name} a tile without masks takes {found[-1]:.2f} instructions for each HMMA, "
                         f"more than {MOST_FOR_A_PRODUCT}")
    return wrong, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    options = parser.parse_args()
    texts = sass.listings(options.folder, sorted({*OBJECTS, *DEPENDENT_OBJECTS, *ceilings.OBJECTS}), options.cuobjdump)
    wrong, count, waiting = [], 0, 0
    for name in sorted({*OBJECTS, *DEPENDENT_OBJECTS}):
        found = functions(texts[name])
        if name in OBJECTS:
            wrong += complaints(name, found)
            count += sum(1 for function in found if VECTOR.search(function))
        if name in DEPENDENT_OBJECTS:
            wrong += early_accesses(name, found)
            waiting += sum(1 for function in found if DEPENDENT.search(function))
    products = []
    for architecture in FLASH_ARCHITECTURES:
        listings = sass.listings(options.folder, FLASH_OBJECTS, options.cuobjdump, architecture)
        costly, found = costly_products(architecture, ceilings.graphs(listings))
        wrong += costly
        products += found
    wrong += ceilings.outdated(texts)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"   {count} instances of kernels load and store 16 bytes at once, none uses local memory")
    print(f"   {waiting} instances of kernels wait for those in front of them before they use memory")
    print(f"   portable flash attention takes {min(products):.2f} to {max(products):.2f} instructions for each HMMA of a tile "
          f"without masks, at most {MOST_FOR_A_PRODUCT}")
    print("   docs/kernels/predicted.md has their counts of instructions, and what follows from them")


if __name__ == "__main__":
    main()
