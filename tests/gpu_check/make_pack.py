#!/usr/bin/env python3
"""Copies the programs listed in BUILD/gpu_pack.txt, stripped, with the libraries they need, to one folder.

usage: make_pack.py BUILD FOLDER [--limit MIB]
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OWN_SCRIPTS = ("benchmarks", "command", "comparisons", "correct", "frame", "gtest", "pack", "profiler", "report", "rows", "runs",
               "sanitizer", "torch_peer", "torch_process", "torch_work")
PEERS = ("peer", "torch_training", "torch_step", "torch_gpt")
SCRIPTS = (*(HERE / f"{name}.py" for name in OWN_SCRIPTS),
           *(HERE.parents[1] / "bench" / "peers" / f"{name}.py" for name in PEERS))
# What every Linux has in a matching version, what comes with the driver, and what is too large and comes with CUDA.
LEFT_OUT = re.compile(r"^(ld-linux|libc|libm|libdl|librt|libpthread|libcuda|libcublas|libcublasLt|libasan|libubsan)\b")
FORBIDDEN = re.compile(r"^(libdnnl|libmkl|libgomp|libiomp)")


def read_list(build):
    """The device of a build and its programs by role."""
    device, programs = None, {}
    for line in (build / "gpu_pack.txt").read_text().splitlines():
        role, value = line.split("\t")
        if role == "device":
            device = value
        else:
            programs.setdefault(role, []).append(pathlib.Path(value))
    return device, programs


def libraries_of(program, forbidden):
    """The shared libraries that a program is started with: name and path."""
    output = subprocess.run(["ldd", program], check=True, text=True, capture_output=True).stdout
    found = {}
    for line in output.splitlines():
        match = re.match(r"\s*(\S+) => (.*?)(?: \(0x[0-9a-f]+\))?$", line)
        if not match or LEFT_OUT.match(match[1]):
            continue
        if forbidden and forbidden.match(match[1]):
            sys.exit(f"make_pack: {program} needs {match[1]}, which does not belong in the pack")
        if match[2] == "not found":
            sys.exit(f"make_pack: {program} needs {match[1]}, which is not there")
        found[match[1]] = pathlib.Path(match[2])
    return found


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-all" if target.parent.name == "bin" else "--strip-unneeded", target], check=True)


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def version_of(build):
    match = re.search(r'HEED_VERSION\s+"([^"]+)"', (build / "include" / "heed" / "version.h").read_text())
    return match[1] if match else "unknown"


def make(build, folder, limit):
    device, programs = read_list(build)
    fresh = folder.with_name(folder.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    names = {}
    for role, paths in programs.items():
        for path in paths:
            copy(path, fresh / "bin" / path.name)
            for name, library in libraries_of(path, FORBIDDEN if device == "gpu" else None).items():
                if not (fresh / "lib" / name).exists():
                    copy(library, fresh / "lib" / name)
        names[role] = [f"bin/{path.name}" for path in paths]
    shutil.copyfile(HERE.parent / "simt" / "ptx" / "ptx_goldens.txt", fresh / "ptx_goldens.txt")
    shutil.copyfile(HERE / "known_reports.txt", fresh / "known_reports.txt")
    (fresh / "script").mkdir()
    for script in SCRIPTS:
        shutil.copyfile(script, fresh / "script" / script.name)
    shutil.copyfile(HERE / "run.py", fresh / "run")
    (fresh / "run").chmod(0o755)
    about = dict(version=version_of(build), device=device, goldens="ptx_goldens.txt", known_reports="known_reports.txt",
                 programs=names)
    (fresh / "pack.json").write_text(json.dumps(about, indent=1) + "\n")
    size = size_of(fresh) / 2**20
    if limit and size > limit:
        largest = sorted(fresh.rglob("*"), key=lambda path: -path.stat().st_size)[:5]
        sys.exit(f"make_pack: {size:.1f} MiB are more than the {limit:.0f} allowed; the largest files: "
                 + ", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f}" for path in largest))
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    print(f"{folder}: {sum(map(len, names.values()))} programs, {size:.1f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=0, help="fail above this many MiB")
    options = parser.parse_args()
    make(options.build, options.folder, options.limit)


if __name__ == "__main__":
    main()
