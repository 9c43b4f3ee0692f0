#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build that clang is configured for.

  clang_tidy.py BUILD [SOURCE…]     BUILD has compile_commands.json, of a build without precompiled headers

Checks spend most of their time on headers. So the sources of a folder are checked together, as many as have no names of
their own in common, by one file that includes them; a source that does not compile after the others is checked alone.
Kernels that Highway compiles for several instruction sets are each checked for one of them, AVX-512.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "cmake"))
from together import together  # noqa: E402

FOLDERS = re.compile(r"(core|kernels/cpu|nn|optim|data|train|apps)/")
MOST = 24  # sources of a run
ONE_TARGET = ["-march=skylake-avx512", "-DHWY_COMPILE_ONLY_STATIC"]


def folder_of(source):
    return "/".join(source.split("/")[: 2 if source.startswith("apps/") else 1])


def flags_of(command):
    """What a source is read by: definitions, folders and warnings."""
    flags, words = [], iter(shlex.split(command)[1:])
    for word in words:
        if word == "-isystem":
            flags.append(f"-isystem{next(words)}")
        elif word.startswith(("-D", "-I", "-W", "-std", "-f")) and not word.startswith("-fsanitize"):
            flags.append(word)
    return flags


class Tidy:
    def __init__(self, build, commands):
        self.folder = build / "tidy"
        self.folder.mkdir(exist_ok=True)
        self.commands = commands

    def run(self, sources):
        """What is found in them."""
        kernels = sources[0].startswith("kernels/")
        flags = dict.fromkeys(flag for source in sources for flag in self.commands[source])
        file = self.folder / (sources[0].replace("/", "_") + (f"+{len(sources) - 1}.cpp" if len(sources) > 1 else ""))
        file.write_text("".join(f'#include "{ROOT / s}"  // NOLINT(bugprone-suspicious-include)\n' for s in sources))
        done = subprocess.run(
            ["clang-tidy-14", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", "--warnings-as-errors=*",
             f"--header-filter={ROOT}/.*", str(file), "--", *flags, *(ONE_TARGET if kernels else [])],
            cwd=ROOT, text=True, capture_output=True)
        found = done.stdout
        if done.returncode == 0 and not found.strip():
            return ""
        if len(sources) > 1 and "clang-diagnostic-error" in found:
            alone = set(re.findall(r"^(\S+?):\S+ error: .*\[clang-diagnostic-error\]", found, re.MULTILINE))
            apart = [[source] for source in sources if str(ROOT / source) in alone]
            rest = [source for source in sources if [source] not in apart]
            groups = apart + [rest] if apart and rest else [[source] for source in sources]
            return "".join(self.run(group) for group in groups)
        return found or done.stderr


def main(build, *chosen):
    build = pathlib.Path(build).resolve()
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = os.path.relpath(entry["file"], ROOT)
        if FOLDERS.match(name) and (not chosen or name in chosen):
            commands[name] = flags_of(entry["command"])
    groups = []
    for _, sources in itertools.groupby(sorted(commands), folder_of):
        groups += together({name: (ROOT / name).read_text() for name in sources}, MOST)
    tidy = Tidy(build, commands)
    # Large ones first, so that none is waited for at the end.
    groups.sort(key=len, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("HEED_JOBS") or os.cpu_count())) as pool:
        clean = True
        for found in pool.map(tidy.run, groups):
            print(found, end="", flush=True)
            clean = clean and not found
    print(f"clang-tidy read {len(commands)} sources in {len(groups)} runs")
    return 0 if clean and commands else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
