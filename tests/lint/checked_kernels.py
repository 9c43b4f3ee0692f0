#!/usr/bin/env python3
"""Fails where tests/simt, which the emulator's checked builds run, do not call an operation of kernels/cuda."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def operations():
    """What HEED_KERNEL and its siblings declare for every device, but for what core/runtime/dispatch.h says that CUDA lacks."""
    lacking = set(re.findall(r"kHasKernel<DeviceType::cuda, kernels::(\w+)> = false;", (ROOT / "core/runtime/dispatch.h").read_text()))
    found = set()
    for header in sorted((ROOT / "kernels").glob("*.h")):
        for name, arguments in re.findall(r"^HEED_KERNEL\w*\((\w+), (\w+)\);", header.read_text(), re.MULTILINE):
            if arguments not in lacking:
                found.add(name)
    return found


def main():
    tests = "".join(path.read_text() for path in sorted((ROOT / "tests" / "simt").rglob("*_test.cpp")))
    wanted = operations()
    missing = sorted(name for name in wanted if not re.search(rf"\b{name}\(", tests))
    print("\n".join(f"tests/simt do not call {name}" for name in missing) or f"{len(wanted)} operations are called")
    return 1 if missing or len(wanted) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
