#!/usr/bin/env python3
"""Checks heed on this machine's GPU: tests, golden results, compute-sanitizer, benchmarks, comparisons with PyTorch.

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
import parts  # noqa: E402

SECONDS = 540
NO_DEVICE = 7


def table(results):
    """The results as text: a line for each part and each of its steps."""
    about = results["about"]
    device = "an emulated device" if about["device"] == "emulated" else "a GPU"
    lines = [f"heed {about['version']} on {device}: {results['status']} after {results['seconds']:.0f} s"]
    for part in results["parts"]:
        lines.append("")
        lines.append(f"{part['name']}: {part['status']} ({part['seconds']:.0f} of {part['limit']:.0f} s)")
        for step in part["steps"]:
            lines.append(f"  {step['status']:10s} {step['name']}{'  ' + step['detail'] if step['detail'] else ''}")
    return "\n".join(lines)


def library_folders():
    """Where CUDA's own libraries may lie, which are too large for the pack."""
    folders = [pathlib.Path(folder) / "lib64" for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda") if folder]
    for site in map(pathlib.Path, sys.path):
        folders += [site / "nvidia" / "cu13" / "lib", site / "nvidia" / "cublas" / "lib"]
    return [str(folder) for folder in dict.fromkeys(folders) if folder.is_dir()]


def check(pack, out, seconds, only):
    whole = frame.Frame(out, seconds, pack.about, table)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, whole.stop)
    try:
        for name, function, share in parts.PARTS:
            if only and name not in only and name != "device":
                continue
            status = whole.part(name, share * seconds / SECONDS, lambda part, f=function: f(pack, part))
            if name == "device" and status == frame.SKIPPED:
                print("there is no CUDA device on this machine: nothing was checked", file=sys.stderr)
                return NO_DEVICE
    except frame.Interrupted:
        pass
    status = whole.results()["status"]
    print(f"{status} (results.json, table.txt and log.txt are in {out})", flush=True)
    return 0 if status == frame.PASSED else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT") or "gpu-check",
                        help="folder of the results (default: $OUT, else gpu-check)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of the whole (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=[name for name, _, _ in parts.PARTS], default=[],
                        metavar="PART", help="only this part; can be repeated")
    options = parser.parse_args()
    libraries = [folder for folder in [os.environ.get("LD_LIBRARY_PATH", ""), *library_folders()] if folder]
    os.environ["LD_LIBRARY_PATH"] = ":".join(libraries)
    sys.exit(check(parts.Pack(HERE), pathlib.Path(options.out), options.seconds, options.only))


if __name__ == "__main__":
    main()
