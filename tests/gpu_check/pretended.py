"""Packs of programs that pretend, for the tests of the check's scripts."""
import json
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frame  # noqa: E402
import pack as packs  # noqa: E402
import report  # noqa: E402

ABOUT = '{"name": "pretended", "compute_capability": 90}'

# A test program: how each test ends, by its name. Broken devices fail every later test of their process, as CUDA does.
TESTS = '''#!/usr/bin/env python3
import os, re, sys, time
tests = {tests!r}
options = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--gtest_filter=")]
chosen = list(tests)
if options and options[0].startswith("-"):
    chosen = [name for name in tests if name not in options[0][1:].split(":")]
elif options:
    chosen = [name for name in tests if re.fullmatch(options[0].replace("*", ".*"), name)]
if "--gtest_list_tests" in sys.argv:
    for suite in dict.fromkeys(name.split(".")[0] for name in chosen):
        print(suite + ".")
        for name in chosen:
            if name.startswith(suite + "."): print("  " + name.split(".")[1])
    sys.exit()
def say(text): print(text, flush=True)
say(f"[==========] Running {{len(chosen)}} tests from 1 test suite.")
open({mark!r}, "a").write(" ".join(chosen) + (" blocking" if os.environ.get("CUDA_LAUNCH_BLOCKING") else "") + "\\n")
failed, broken = [], False
for name in chosen:
    say(f"[ RUN      ] {{name}}")
    how = tests[name]
    if broken or how == "breaks":
        broken = True
        say('C++ exception with description "kernel: an illegal memory access was encountered"')
    elif how == "breaks in company" and len(chosen) > 1:
        broken = True
        say("misaligned address")
    elif how == "hangs":
        time.sleep(60)
    elif how == "sleeps":
        time.sleep(0.6)
    elif how == "dies":
        os.kill(os.getpid(), 11)
    elif how == "exits":
        os._exit(3)
    elif how == "rubbish":
        sys.stdout.buffer.write(b"\\xff\\x00[ RUN ] nothing [       OK ] Other.Test (0 ms)\\n{{]}}")
    elif how == "says":
        say("misaligned address, which the test wanted")
    bad = broken or how == "fails"
    if bad and how == "fails": say("file.cpp:3: Failure\\nExpected 1, got 2")
    if not bad and how != "host" and how != "skips": say(f"[  DEVICE  ] {{name}}")
    say(f"[  {{'FAILED  ' if bad else 'SKIPPED ' if how == 'skips' else '     OK '}}] {{name}} (3 ms)")
    failed += [name] * bad
say(f"[==========] {{len(chosen)}} tests from 1 test suite ran. (1 ms total)")
for name in failed: say(f"[  FAILED  ] {{name}}")
if {code} == "stays": time.sleep(60)
sys.exit({code} or bool(failed))
'''

# A program of Google Benchmark: `cases` maps names to what stands in the report, or to how the process ends at it.
PROGRAM = '''#!/usr/bin/env python3
import json, os, re, sys, time
cases = {cases!r}
options = dict(a[2:].split("=", 1) for a in sys.argv[1:] if "=" in a)
pattern = options.get("benchmark_filter", ".")
open({mark!r}, "a").write(pattern + " " + options.get("batches", "") + "\\n")
chosen = [name for name in cases if re.search(pattern, name + "/iterations:1/manual_time")]
if "--benchmark_list_tests" in sys.argv:
    print("a stray line")
    for name in chosen: print(name + "/iterations:1/manual_time")
    sys.exit()
file = open(options["benchmark_out"], "w")
file.write('{{"context": {{"name": "x"}},\\n"benchmarks": [\\n')
print("a library says something\\n{{", flush=True)
for i, name in enumerate(chosen):
    how = cases[name]
    if how == "hangs": time.sleep(60)
    if how == "dies": os.kill(os.getpid(), 11)
    if how == "breaks": file.write(",{{\\"name\\": 3,,"); file.flush(); continue
    if how == "says nothing": continue
    run = dict(dict(name=name + "/iterations:1/manual_time", run_type="iteration", time_unit="us"), **how)
    file.write((",\\n" if i else "") + json.dumps(run, indent=1)); file.flush()
    print(name, flush=True)
file.write("]}}")
file.close()
sys.stderr.write("rubbish }} [\\xff")
'''


class Pretended(unittest.TestCase):
    """A pack of scripts in a temporary folder."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.out = self.folder / "out"
        self.programs = {}
        self.add("about", "about_device", f"#!/bin/sh\necho a stray line\necho '{ABOUT}'\necho another\n")
        self.goldens = "a 10 11\nb 7\n"
        (self.folder / "goldens.txt").write_text(self.goldens)
        (self.folder / "known_reports.txt").write_text("# none\n")

    def add(self, role, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        self.programs.setdefault(role, []).append(f"bin/{name}")

    def add_tests(self, role, name, tests, code=0):
        self.add(role, name, TESTS.format(tests=tests, code=repr(code), mark=str(self.folder / f"{name}.runs")))

    def processes(self, name):
        """The tests of each process of a program so far."""
        return [line.split() for line in (self.folder / f"{name}.runs").read_text().splitlines()]

    def pack(self, device="gpu"):
        about = dict(version="0", device=device, goldens="goldens.txt", known_reports="known_reports.txt", programs=self.programs)
        (self.folder / "pack.json").write_text(json.dumps(about))
        return packs.Pack(self.folder)

    def frame(self, device="gpu", scale=1.0):
        whole = frame.Frame(self.out, 60, dict(version="0", device=device), report.table, scale)
        self.addCleanup(whole.log.close)
        return whole

    def part(self, function, seconds=20, device="gpu", scale=1.0):
        """Runs one part; its summary."""
        pack = self.pack(device)
        self.frame(device, scale).part("part", seconds / scale, lambda part: function(pack, part))
        return json.loads((self.out / "results.json").read_text())["parts"][0]

    def steps(self, function, **options):
        return {step["name"]: step["status"] for step in self.part(function, **options)["steps"]}


class WithBenchmarks(Pretended):
    def bench(self, name, cases):
        self.add("bench", name, PROGRAM.format(cases=cases, mark=str(self.folder / f"{name}.runs")))

    def runs_of(self, name):
        return [line.split() for line in (self.folder / f"{name}.runs").read_text().splitlines()]
