#!/usr/bin/env python3
"""Fails where a folder includes what it must not: core/base <- kernels <- core <- {nn, optim, data} <- {train, nn/text} <- apps."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = {
    "core/base": {"core/base"},
    "core/io": {"core/io", "core/base"},
    "kernels": {"kernels", "core/base"},
    "core": {"core", "core/io", "kernels", "core/base"},
    "nn": {"nn", "core", "core/io", "kernels", "core/base"},
    "optim": {"optim", "core", "kernels", "core/base"},
    "data": {"data", "core", "core/io", "core/base"},
    "train": {"train", "nn", "optim", "data", "core", "core/io", "kernels", "core/base"},
    "nn/text": {"nn/text", "nn", "data", "core", "core/io", "core/base"},  # models between tokenizers
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:heed/)?([^>"]+)[>"]')
CUDA_FOLDERS = ("kernels/cuda/", "kernels/simt/", "tests/simt/", "tests/gpu_check/", "bench/cuda/")


def folder_of(path):
    """The part of the tree that a path belongs to, or None outside of it."""
    for folder in ("core/base", "core/io", "nn/text"):
        if path.startswith(folder + "/"):
            return folder
    first = path.split("/", 1)[0]
    return first if first in ALLOWED else None


def main():
    files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, check=True, text=True,
                           capture_output=True).stdout.split()
    wrong = []
    for name in files:
        source = folder_of(name)
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            if target == "cuda_runtime.h" and not name.startswith(CUDA_FOLDERS):
                wrong.append(f"{name}:{number}: cuda_runtime.h belongs to kernels/cuda and kernels/simt")
            folder = folder_of(target)
            if source and folder and folder not in ALLOWED[source]:
                wrong.append(f"{name}:{number}: {source} must not include {target}")
    print("\n".join(wrong) if wrong else f"{len(files)} files include only what they may")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
