#!/usr/bin/env python3
"""Fails where two files of kernels/cpu define a type of the same name in HWY_NAMESPACE: its members have external linkage, and
the linker would take one of them for both."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMESPACE = re.compile(r"^namespace heed::cpu::HWY_NAMESPACE \{\n(.*?)^\}  // namespace heed::cpu::HWY_NAMESPACE", re.M | re.S)
TYPE = re.compile(r"^(?:template <.*>\n)?(?:struct|class) (\w+)[^;\n]*\{", re.M)


def main():
    files = collections.defaultdict(set)
    for file in (ROOT / "kernels/cpu").rglob("*.cpp"):
        for body in NAMESPACE.findall(file.read_text()):
            for name in TYPE.findall(body):
                files[name].add(str(file.relative_to(ROOT)))
    twice = {name: sorted(where) for name, where in files.items() if len(where) > 1}
    for name, where in sorted(twice.items()):
        print(f"{name} is defined in {' and '.join(where)}", file=sys.stderr)
    if not files:
        sys.exit("no types were found")
    print(f"{len(files)} types")
    sys.exit(bool(twice))


if __name__ == "__main__":
    main()
