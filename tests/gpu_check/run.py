#!/usr/bin/env python3
"""Checks heed on this machine's GPU: `first` its tests and the main times, `measure` all times beside PyTorch's, `inspect` by
compute-sanitizer and Nsight Compute; without a word all three.

Writes results.json, table.txt and log.txt, as they come. Exit codes: 0 all that ran passed, 1 something failed or did
not end in time, 7 there is no device.
"""
import argparse
import os
import pathlib
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "script"))

import frame  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402
from gtest import NO_DEVICE  # noqa: E402
from pack import Pack  # noqa: E402


def library_folders():
    """Where CUDA's own libraries may lie, which are too large for the pack."""
    folders = [pathlib.Path(folder) / "lib64" for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda") if folder]
    for site in map(pathlib.Path, sys.path):
        folders += [site / "nvidia" / "cu13" / "lib", site / "nvidia" / "cublas" / "lib"]
    return [str(folder) for folder in dict.fromkeys(folders) if folder.is_dir()]


def check(pack, out, word, stretch):
    parts, limit = runs.parts_of(word)
    libraries = [folder for folder in [os.environ.get("LD_LIBRARY_PATH", ""), *library_folders()] if folder]
    # PyTorch brings libraries of its own, and is no command of a part.
    environment = dict(LD_LIBRARY_PATH=":".join(libraries))
    whole = frame.Frame(out, limit * stretch, dict(pack.about, run=word), report.table, stretch, environment)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, whole.stop)
    try:
        for name, function, share in parts:
            status = whole.part(name, share, lambda part, f=function: f(pack, part))
            if name == "device" and status == frame.SKIPPED:
                print("there is no CUDA device on this machine: nothing was checked", file=sys.stderr)
                return NO_DEVICE
    except frame.Interrupted:
        pass
    finally:
        if pack.torch:
            pack.torch.close()
        whole.end()
    results = whole.results()
    print(f"\n{report.summary(results)}\n{results['status']} (results.json, table.txt and log.txt are in {out})", flush=True)
    return 0 if results["status"] == frame.PASSED else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", choices=[*runs.RUNS, runs.ALL], default=runs.ALL, metavar="first|measure|inspect",
                        help="; ".join(f"{word}: at most {limit} s" for word, (_, limit) in runs.RUNS.items()))
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT") or "gpu-check",
                        help="folder of the results (default: $OUT, else gpu-check)")
    parser.add_argument("--stretch", type=float, default=1.0, help="what all limits are multiplied by")
    options = parser.parse_args()
    try:
        pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {options.out} cannot be a folder: {error.strerror}")
    sys.exit(check(Pack(HERE), pathlib.Path(options.out), options.run, options.stretch))


if __name__ == "__main__":
    main()
