#!/usr/bin/env python3
"""Compiles a kernel source with nvcc and fails where a kernel spills, keeps arrays in local memory, or exceeds its budget.

    resources.py NVCC OPTIONS… SOURCE -o OBJECT     -Xptxas -v is added; so CMake can compile kernels by it

What each kernel takes is written to OBJECT.txt. With HEED_BUDGETS=write in the environment, missing budgets are
written into the sources, from what the compiler says.

The budget of a kernel stands in a comment right above it:

    // Budget: 64 registers, 2048 bytes shared.
    // Budget: 64 registers, 2048 bytes shared, 16 bytes stack.      where a stack is accepted
    // Budget: 64 registers, 2048 bytes shared, 16 bytes stack, 64 bytes spilled.     and stores and loads of spills

Registers are a thread's; shared memory is a block's, without what the launch adds. All instances and architectures count.
Kernels of the .cuh files that a source includes count where it instantiates them.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
Usage = collections.namedtuple("Usage", "function architecture registers shared stack spills")
Budget = collections.namedtuple("Budget", "registers shared stack spills", defaults=(0,))

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
BUDGET = re.compile(r"^\s*// Budget: (\d+) registers, (\d+) bytes shared(?:, (\d+) bytes stack(?:, (\d+) bytes spilled)?)?\.$")
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")


def kernels(text):
    """(name, line index where its declaration begins, Budget or None) of every kernel in a source."""
    lines = text.split("\n")
    found = []
    for match in KERNEL.finditer(text):
        line = text.count("\n", 0, match.start())
        while line > 0 and re.match(r"\s*(template|requires)\b|.*[>,]$", lines[line - 1]) \
                and not lines[line - 1].lstrip().startswith("//"):
            line -= 1
        above = BUDGET.match(lines[line - 1]) if line > 0 else None
        budget = Budget(*(int(number or 0) for number in above.groups())) if above else None
        found.append((match[1], line, budget))
    return found


def headers_of(text, folder=ROOT):
    """The .cuh files of heed that a source includes, directly or not: path and text."""
    found, left = {}, [text]
    while left:
        for name in re.findall(r"#\s*include\s*<heed/([^>]+\.cuh)>", left.pop()):
            if name not in found:
                found[name] = (folder / name).read_text()
                left.append(found[name])
    return found


def usages(output):
    """What ptxas reports of each function it compiled."""
    found, entry, frame = [], None, None
    for line in output.splitlines():
        if match := ENTRY.search(line):
            entry, frame = match.groups(), (0, 0)
        elif (match := FRAME.search(line)) and entry:
            frame = int(match[1]), int(match[2]) + int(match[3])
        elif (match := USED.search(line)) and entry:
            found.append(Usage(*entry, int(match[1]), int(match[2] or 0), *frame))
            entry = None
    return found


def instances(name, found):
    """The functions of a kernel: names in mangled ones follow their length."""
    return [usage for usage in found if re.search(rf"{len(name)}{name}(?:I|E|P|v|N|\d|$)", usage.function)]


def most(mine):
    """The budget that all these instances keep to."""
    return Budget(*(max(getattr(usage, field) for usage in mine) for field in ("registers", "shared", "stack")))


def text_of(budget):
    return (f"// Budget: {budget.registers} registers, {budget.shared} bytes shared"
            + (f", {budget.stack} bytes stack." if budget.stack else "."))


def check(name, text, found, headers=None):
    """The complaints about the kernels of a source and of its headers, one a line."""
    wrong = []
    listed = [(name, *kernel) for kernel in kernels(text)]
    for header, content in (headers or {}).items():
        listed += [(header, *kernel) for kernel in kernels(content) if instances(kernel[0], found)]
    for file, kernel, line, budget in listed:
        place = f"{file}:{line + 1}: {kernel}"
        mine = instances(kernel, found)
        if not mine:
            wrong.append(f"{place}: the compiler reports no such kernel")
            continue
        for usage in mine:
            if usage.spills > (budget.spills if budget else 0):
                wrong.append(f"{place} spills {usage.spills} bytes for {usage.architecture} ({usage.function})")
        used = most(mine)
        if budget is None:
            wrong.append(f"{place} has no budget; it uses, and above it could stand:\n{text_of(used)}")
            continue
        for field, limit in zip(("registers", "shared", "stack"), budget):
            for usage in mine:
                if getattr(usage, field) > limit:
                    what = "registers" if field == "registers" else f"bytes {field}"
                    wrong.append(f"{place} takes {getattr(usage, field)} {what} for {usage.architecture}, "
                                 f"its budget is {limit} ({usage.function})")
    known = {usage for _, kernel, _, _ in listed for usage in instances(kernel, found)}
    wrong += [f"{name}: {usage.function} is no kernel with a name of its own in this source"
              for usage in found if usage not in known]
    return wrong


def with_budgets(text, found):
    """The source with a budget above each kernel that has none; registers are rounded up to what is allocated."""
    lines = text.split("\n")
    for kernel, line, budget in sorted(kernels(text), key=lambda item: -item[1]):
        mine = instances(kernel, found)
        if budget is None and mine:
            used = most(mine)
            lines.insert(line, text_of(used._replace(registers=(used.registers + 7) // 8 * 8)))
    return "\n".join(lines)


def write_budgets(files, found):
    for path in files:
        before = path.read_text()
        after = with_budgets(before, found)
        if after != before:
            path.write_text(after)


def main():
    arguments = sys.argv[1:]
    source = next((pathlib.Path(argument) for argument in arguments if argument.endswith(".cu")), None)
    if source is None or "-o" not in arguments[:-1]:
        sys.exit(__doc__)
    budgets = os.environ.get("HEED_BUDGETS", "check")
    if budgets not in ("check", "write"):
        sys.exit(f"HEED_BUDGETS is '{budgets}'; expected check or write")
    result = subprocess.run([*arguments, "-Xptxas", "-v"], check=False, text=True, capture_output=True)
    output = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(output)
    found = usages(output)
    target = pathlib.Path(arguments[arguments.index("-o") + 1])
    target.with_name(target.name + ".txt").write_text("".join(
        f"{usage.registers:4d} registers {usage.shared:6d} bytes shared {usage.stack:4d} stack  "
        f"{usage.architecture}  {usage.function}\n" for usage in found))
    if budgets == "write":
        write_budgets((source, *(ROOT / header for header in headers_of(source.read_text()))), found)
    text = source.read_text()
    wrong = check(source.name, text, found, headers_of(text))
    if wrong:
        target.unlink()
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
