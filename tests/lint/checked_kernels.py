#!/usr/bin/env python3
"""Fails where tests/simt, which the emulator's checked builds run, do not call an operation of kernels/cuda."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def operations():
    """Functions of heed::cuda that take an argument struct: what HEED_DECLARE(cuda) and the like declare."""
    found = set()
    for header in sorted((ROOT / "kernels").glob("*.h")):
        text = header.read_text()
        if re.search(r"HEED_DECLARE\w*\(cuda\)|namespace heed::cuda", text):
            found |= set(re.findall(r"\bvoid (\w+)\(const (?:kernels::)?[A-Z]\w+(?:<[^>]*>)?& args\)", text))
    return found


def main():
    tests = "".join(path.read_text() for path in sorted((ROOT / "tests" / "simt").rglob("*_test.cpp")))
    wanted = operations()
    missing = sorted(name for name in wanted if not re.search(rf"\b{name}\(", tests))
    print("\n".join(f"tests/simt do not call {name}" for name in missing) or f"{len(wanted)} operations are called")
    return 1 if missing or len(wanted) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
