#!/usr/bin/env python3
"""How long the main CUDA kernels can take at least, by what they move, issue and multiply: predictions, of which none is
measured. Writes docs/kernels/predicted.md, and fails where it no longer says what the machine code and the shapes do.

    ceilings.py FOLDER [--cuobjdump PROGRAM] [--write]     FOLDER holds the kernels' objects, as CMake builds them

Instructions are read from the machine code: sass.py finds the loops, and planned_kernels.py says how often a warp goes round
each, from the shape and the launch. Passes over operands are those of passes.inc, which traffic_test.cpp counts on the emulator.
"""
import argparse
import collections
import functools
import pathlib
import re
import sys

import sass
from planned_kernels import KERNELS, MULTIPROCESSORS

OBJECTS = tuple(sorted({launch.object for kernel in KERNELS for launch in kernel.launches}))
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/kernels/predicted.md"
TOLERANCE = 0.1  # of instructions and times, from one nvcc to another

# ---- the chip, an H200; an H100 differs in its memory

SCHEDULERS, CLOCK = 4, 1.755e9
COPY, COPY_H100 = 4226e9, 3000e9  # bytes a second, read and written
# A multiprocessor's, in a clock.
INTEGER_LANES, SPECIAL_LANES, SHARED_BYTES = 64, 16, 128
WGMMA, MMA = 4096, 0.629 * 4096  # operations
LAUNCH, NEXT_LAUNCH = 2e-6, 1.3e-6  # of a graph's kernel, and of each that follows for the same operation

INTEGER = set("BMSK F2FP FMNMX FSEL FSET FSETP I2FP IABS IADD3 IMNMX ISETP LEA LOP3 MOV P2R PLOP3 PRMT R2P SEL SGXT SHF "
              "VABSDIFF VIADD VIADDMNMX VIMNMX".split())
SHARED = re.compile(r"(LDS|STS|LDSM|STSM|SHFL|LDGSTS)\b")
WGMMA_SHAPE = re.compile(r"HGMMA\.(\d+)x(\d+)x(\d+)")
MMA_OPERATIONS = 2 * 16 * 8 * 16

# Of all warps; `shared`: bytes of shared memory; `wgmma` and `mma`: operations of the tensor cores.
Counts = collections.namedtuple("Counts", "issued integer special shared wgmma mma")


def bytes_of_shared(instruction):
    """What a warp's instruction moves between shared memory and registers, or lanes."""
    match = SHARED.match(instruction.opcode)
    if not match or instruction.predicate:
        return 0
    if match[1] in ("LDSM", "STSM"):
        return 128 * int(instruction.opcode[-1]) if instruction.opcode[-1] in "24" else 128
    width = re.search(r"\.(64|128)\b", instruction.opcode)
    return 32 * (int(width[1]) // 8 if width else 4)


def counts_of(executed, warps):
    issued = integer = special = shared = wgmma = mma = 0.0
    for instruction, times in executed:
        opcode = instruction.opcode.split(".")[0]
        issued += times
        integer += times * (opcode in INTEGER)
        special += times * (opcode == "MUFU")
        shared += times * bytes_of_shared(instruction)
        if match := WGMMA_SHAPE.match(instruction.opcode):  # a warp's quarter; operands of both, or of the second one
            m, n, k = map(int, match.groups())
            from_memory = n + (m if instruction.operands.split(",")[1].strip().startswith("gdesc") else 0)
            wgmma += times * 2 * m * n * k / 4
            shared += times * 2 * from_memory * k / 4
        elif opcode == "HMMA":
            mma += times * MMA_OPERATIONS
    return Counts(*(warps * count for count in (issued, integer, special, shared, wgmma, mma)))


def times_of(kernel, counts):
    """{ceiling: seconds at least}"""
    clock = MULTIPROCESSORS * CLOCK / kernel.busiest
    return {"memory": kernel.bytes / COPY, "issue": counts.issued / (SCHEDULERS * clock),
            "integer": 32 * counts.integer / (INTEGER_LANES * clock), "special": 32 * counts.special / (SPECIAL_LANES * clock),
            "shared": counts.shared / (SHARED_BYTES * clock), "tensor": (counts.wgmma / WGMMA + counts.mma / MMA) / clock}


# ---- the page


def predicted(graph_of):
    """[(kernel, [(launch, instructions of a warp)], Counts)]; graph_of(object, function) is a sass.Graph."""
    found = []
    for kernel in KERNELS:
        launches, counts = [], Counts(*(0 for _ in Counts._fields))
        for launch in kernel.launches:
            executed = sass.executed(graph_of(launch.object, launch.function), launch.plan)
            launches.append((launch, sum(times for _, times in executed)))
            counts = Counts(*map(sum, zip(counts, counts_of(executed, launch.warps))))
        found.append((kernel, launches, counts))
    return found


def graphs(listings):
    """graph_of for disassembled objects."""
    texts = {name: sass.texts_of(listing) for name, listing in listings.items()}

    @functools.lru_cache(None)
    def graph_of(object_, function):
        found = [text for name, text in texts[object_].items() if re.search(function, name)]
        if len(found) != 1:
            raise ValueError(f"{object_} has {len(found)} functions {function}")
        return sass.Graph(sass.instructions(found[0]))

    return graph_of


def bounds(kernel, counts, copy=COPY):
    """Seconds: if all that a kernel does overlaps, and if the two that take longest go by turns."""
    times = times_of(kernel, counts) | {"memory": kernel.bytes / copy}
    longest = sorted(times.values(), reverse=True)
    started = LAUNCH + NEXT_LAUNCH * (len(kernel.launches) + kernel.small - 1)
    return longest[0] + started, longest[0] + longest[1] + started


def verdict(kernel, best, worst):
    limit = goal_time(kernel)
    if limit is None:
        return ""
    return "yes" if worst <= limit else "if they overlap" if best <= limit else "**no**"


def goal_time(kernel):
    return kernel.bytes / COPY / kernel.share if kernel.share else kernel.time


def number(value):
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def percent(share):
    return f"{100 * share:.0f} %"


def microseconds(seconds):
    return number(seconds * 1e6) if seconds >= 0.05e-6 else "-"


def table(heads, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def bold_longest(times):
    longest = max(times.values())
    return [f"**{microseconds(time)}**" if time == longest else microseconds(time) for time in times.values()]


def memory_rows(found):
    for kernel, _, counts in found:
        if kernel.operations:
            continue
        times, (best, worst) = times_of(kernel, counts), bounds(kernel, counts)
        least = kernel.bytes / COPY
        goal = "" if goal_time(kernel) is None else percent(kernel.share) if kernel.share else f"{microseconds(kernel.time)} µs"
        del times["tensor"]
        yield [kernel.title, number(kernel.bytes / 1e6), *bold_longest(times), f"{microseconds(best)} to {microseconds(worst)}",
               f"{percent(least / best)} to {percent(least / worst)}", microseconds(bounds(kernel, counts, COPY_H100)[0]), goal,
               verdict(kernel, best, worst)]


def attention_rows(found):
    peak = MULTIPROCESSORS * CLOCK * WGMMA
    for kernel, _, counts in found:
        if not kernel.operations:
            continue
        best, worst = bounds(kernel, counts)
        goal = "" if kernel.time is None else f"{microseconds(kernel.time)}"
        yield [kernel.title, *bold_longest(times_of(kernel, counts)), f"{microseconds(best)} to {microseconds(worst)}",
               f"{percent(kernel.operations / peak / best)} to {percent(kernel.operations / peak / worst)}", goal,
               verdict(kernel, best, worst)]


def way_of(plan):
    """A plan but for the numbers of rounds."""
    return plan.anchor, str(plan.needs), *(way_of(loop) for loop in plan.loops)


def count_rows(found):
    """Once for each way through a function: other shapes take it more or less often."""
    seen = set()
    for kernel, launches, _ in found:
        for launch, instructions in launches:
            way = launch.function, way_of(launch.plan)
            if way in seen:
                continue
            seen.add(way)
            yield [kernel.title, f"`{launch.object}`: `{plain_name(launch.function)}`", f"{launch.warps:,.0f}",
                   f"{instructions:,.0f}"]


def plain_name(function):
    """The name that stands in a pattern for a mangled one."""
    return re.search(r"(?:^|\d)([a-z_]+_kernel)", function)[1]


PAGE_TEXT = """# Predicted times of the CUDA kernels

**Predictions: no time or share on this page is measured.** What was measured is in [performance](../gpu_performance.md). They say what a
kernel cannot be faster than, and what it would take to get there.

`tests/simt/ceilings.py` writes this page from the machine code that nvcc makes for Hopper; `./heed test --kernels` and `--all`
fail where its counts of instructions, or what follows from them, are off by more than {tolerance}, and where its bytes or goals are
others.

## How they are made

Each kernel is held against what an H200 can do:

| Ceiling | Rate | Known from |
|---|---|---|
| memory | {copy:,.0f} GB/s, read and written | a copy, measured by `./heed gpu-check`; on an H100 it moves about {copy_h100:,.0f} |
| issue | {schedulers} instructions of a warp a clock and multiprocessor; {processors} multiprocessors, {clock:.3f} GHz | the vendor's description; \
the clock is one that a busy chip holds |
| integer | {integer} lanes a clock: integers, logic, shifts, comparisons, selections, conversions | CUDA's programming guide, \
throughput of arithmetic instructions |
| special | {special} lanes a clock: exponentials, reciprocals, roots | the same |
| shared | {shared} bytes a clock of shared memory, by loads, stores, shuffles and wgmma's operands | the same |
| tensor | {wgmma:,} operations of bf16 a clock by wgmma, {mma} of that by mma.sync | the vendor's peak; Luo et al., arXiv 2402.13499 |

A ceiling's time is the work over the rate, times what the busiest multiprocessor has more than the average. **The predicted time has two
ends**: if all overlaps, a kernel takes as long as its highest ceiling (bold); if nothing does, as long as the two highest
together. Each has {launch:.0f} µs for starting a kernel, and {next_launch:.1f} µs for any that follows in a graph. *Predicted to reach* the goal: "yes" if
even the later end does, "if they overlap" if only the earlier one, "no" if neither. Latencies, barriers, bank conflicts and caches
that miss are in neither end.

- **Bytes** are the passes over operands that the emulator counts (`tests/simt/passes.inc`), each operand as often as it has to be moved.
- **Instructions** are read from the machine code, on the shortest way through a kernel's blocks that does what the operation
  needs, each loop as often as the shape asks (`tests/simt/planned_kernels.py`). Those whose predicate is false count, since they take
  their turn. Tiles that a causal rule cuts count as tiles that are seen whole.
- **Small kernels** before and behind, which count targets, add up sums of blocks or make gradients of sums, count as launches and
  with their bytes.

All is of bf16 unless another type is named; times are in µs.

## Memory-bound kernels, predicted

Goals are shares of the copy's rate, or times: what PyTorch [took](../performance/h200.json) over how many times as fast heed is to be.

{memory}

## Attention, predicted

The share is that of the tensor cores' peak at this clock, {peak:.0f} TFLOP/s, by the operations that a forward and a backward need (2 and 5
products, of pairs that are seen); the portable backward makes 7. Goals are the times of PyTorch's best kernels, for at most 128
tokens over 1.3 forward and 2 backward. `Hopper`, `portable` and `short` are [paths](attention.md); on Hopper the portable
kernels take only what its own do not.

{attention}

## Instructions, counted

Of one warp from its begin to its end, on average; other shapes differ in the rounds alone.

{counts}
"""


def page_of(found):
    return PAGE_TEXT.format(
        tolerance=percent(TOLERANCE), copy=COPY / 1e9, copy_h100=COPY_H100 / 1e9, processors=MULTIPROCESSORS, schedulers=SCHEDULERS,
        clock=CLOCK / 1e9, integer=INTEGER_LANES, special=SPECIAL_LANES, shared=SHARED_BYTES, wgmma=WGMMA, mma=percent(MMA / WGMMA),
        launch=LAUNCH * 1e6, next_launch=NEXT_LAUNCH * 1e6, peak=MULTIPROCESSORS * CLOCK * WGMMA / 1e12,
        memory=table(["Kernel", "MB", "memory", "issue", "integer", "special", "shared", "predicted time", "predicted share",
                      "an H100, at best", "goal", "predicted to reach"], memory_rows(found)),
        attention=table(["Kernel", "memory", "issue", "integer", "special", "shared", "tensor", "predicted time",
                         "predicted share", "goal", "predicted to reach"], attention_rows(found)),
        counts=table(["Kernel", "Launch", "Warps", "Instructions a warp"], count_rows(found)))


COUNTED = re.compile(r"^\| ([^|]+) \| (`[\w/]+`: `\w+`) \| ([\d,]+) \| ([\d,]+) \|$", re.M)


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|(?<!\S)-(?!\S)")
REACHES = "predicted to reach"  # follows from the times and the goal
WITHOUT_CODE = ("MB", "memory", "goal")  # no nvcc makes others


def predictions(page):
    """{kernel: {column: cell}} of the tables of predictions."""
    found, heads = {}, []
    for line in page.splitlines():
        cells = line[2:-2].split(" | ") if line.startswith("| ") else []
        if REACHES in cells:
            heads = cells
        elif not line:
            heads = []
        elif heads and cells:
            found[cells[0]] = dict(zip(heads[1:], cells[1:]))
    return found


def agree(column, before, now):
    """Whether two cells say the same, numbers within the tolerance; what is bold follows from them."""
    if column == REACHES:
        return True
    before, now = before.replace("**", ""), now.replace("**", "")
    if column in WITHOUT_CODE:
        return before == now
    pairs = [[float(text.replace(",", "").replace("-", "0")) for text in pair]
             for pair in zip(NUMBER.findall(before), NUMBER.findall(now))]
    return NUMBER.sub("", before) == NUMBER.sub("", now) and \
        all(abs(a - b) <= TOLERANCE * max(a, b) + 0.1 for a, b in pairs)


def outdated(listings, page=None):
    """What the page says wrongly of disassembled objects, one a line."""
    try:
        found = predicted(graphs(listings))
    except ValueError as error:
        return [f"ceilings.py: {error}"]
    page = PAGE.read_text() if page is None else page
    wrong = [*outdated_counts(found, page), *outdated_predictions(found, page)]
    return [*wrong, "ceilings.py --write brings the page up to date"] if wrong else []


def outdated_counts(found, page):
    wrong = []
    written = {(title, launch): (warps, int(count.replace(",", ""))) for title, launch, warps, count in COUNTED.findall(page)}
    for title, launch, warps, count in count_rows(found):
        now = int(count.replace(",", ""))
        before_warps, before = written.pop((title, launch), ("", 0))
        if before_warps != warps or abs(now - before) > TOLERANCE * before:
            wrong.append(f"{PAGE.name}: {title}, {launch}: {warps} warps of {now:,} instructions, not "
                         f"{before_warps or 'any'} of {before:,}")
    return wrong + [f"{PAGE.name}: {title}, {launch} is no kernel of ceilings.py" for title, launch in written]


def outdated_predictions(found, page):
    wrong, written = [], predictions(page)
    for title, cells in predictions(page_of(found)).items():
        before = written.pop(title, {})
        stale = [f"{column} {now or 'nothing'}, not {before.get(column) or 'nothing'}" for column, now in cells.items()
                 if not agree(column, before.get(column, ""), now)]
        if stale:
            wrong.append(f"{PAGE.name}: {title}: {'; '.join(stale)}")
    return wrong + [f"{PAGE.name}: {title} is no kernel of ceilings.py" for title in written]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    listings = sass.listings(options.folder, OBJECTS, options.cuobjdump)
    if options.write:
        PAGE.write_text(page_of(predicted(graphs(listings))))
    elif wrong := outdated(listings):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
