#!/usr/bin/env python3
"""Compiles discarded_results.cpp and fails unless the compiler warns of exactly the lines that are marked there. Arguments: the
compiler and the folder of headers."""
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_suffix(".cpp")

compiler, headers = sys.argv[1:]
command = [compiler, "-std=c++20", "-fsyntax-only", "-Wunused-result", f"-I{headers}", str(SOURCE)]
done = subprocess.run(command, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
if done.returncode != 0:
    sys.exit(done.stderr)
warned = {int(line) for line in re.findall(rf"{SOURCE.name}:(\d+):\d+: warning", done.stderr)}
marked = {i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if line.endswith("// lost")}
for line in sorted(warned ^ marked):
    print(f"{SOURCE.name}:{line}: {'unexpected warning' if line in warned else 'no warning'}")
sys.exit(warned != marked)
