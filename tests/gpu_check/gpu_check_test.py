#!/usr/bin/env python3
"""The script of GPU checks with programs that pretend: time, partial results, and that no failure passes."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "bench" / "cuda"
sys.path.insert(0, str(HERE))

import frame  # noqa: E402
import make_pack  # noqa: E402
import parts  # noqa: E402
import run  # noqa: E402

ABOUT = '{"name": "pretended", "compute_capability": 90}'
GTEST = '''#!/usr/bin/env python3
import json, sys
tests = {tests}
path = [a for a in sys.argv if a.startswith("--gtest_output=json:")][0].split(":", 1)[1]
json.dump(dict(testsuites=[dict(name="Suite", testsuite=tests)]), open(path, "w"))
sys.exit(any(t.get("failures") for t in tests))
'''
GOLDENS = '''#!/usr/bin/env python3
import sys
mine = {mine!r}.splitlines()
theirs = open(sys.argv[2]).read().splitlines()
wrong = [line for line in mine if line not in theirs]
print(f"{{len(mine)}} cases, {{len(wrong)}} differ")
sys.exit(bool(wrong))
'''


def sanitizer_script(finds, noise=()):
    """A compute-sanitizer that finds the canaries of `finds` and complains of programs named in `noise`."""
    return f'''#!/bin/sh
tool=$2; shift 4
case "$(basename $1) $2" in
  "canary $tool") case " {' '.join(finds)} " in *" $tool "*) echo "ERROR SUMMARY: 1 error"; exit 99;; esac;;
esac
case " {' '.join(noise)} " in *" $(basename $1) "*) echo "RACECHECK SUMMARY: 2 hazards displayed (2 errors)"; exit 99;; esac
echo "ERROR SUMMARY: 0 errors"
'''


class Pretended(unittest.TestCase):
    """A pack of scripts in a temporary folder."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.out = self.folder / "out"
        self.programs = {}
        self.add("about", "about_device", f"#!/bin/sh\necho '{ABOUT}'\n")
        self.goldens = "a 10 11\nb 7\n"
        (self.folder / "goldens.txt").write_text(self.goldens)

    def add(self, role, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        self.programs.setdefault(role, []).append(f"bin/{name}")

    def pack(self, device="gpu"):
        about = dict(version="0", device=device, goldens="goldens.txt", programs=self.programs)
        (self.folder / "pack.json").write_text(json.dumps(about))
        return parts.Pack(self.folder)

    def part(self, function, seconds=20, device="gpu"):
        """Runs one part; its summary."""
        whole = frame.Frame(self.out, 60, dict(version="0", device=device), run.table)
        pack = self.pack(device)
        whole.part("part", seconds, lambda part: function(pack, part))
        whole.log.close()
        return json.loads((self.out / "results.json").read_text())["parts"][0]

    def steps(self, function, **options):
        return {step["name"]: step["status"] for step in self.part(function, **options)["steps"]}


class Frame(Pretended):
    def test_a_slow_command_is_ended_with_all_that_it_started(self):
        mark = self.folder / "mark"
        self.add("x", "slow", f"#!/bin/sh\n(sleep 2; touch {mark}) &\necho begun\nsleep 60\n")

        def slow(pack, part):
            outcome = part.run([pack.program("x")], 0.5)
            part.record("slow", frame.INCOMPLETE if outcome.timed_out else frame.PASSED, outcome.last_line())
        begin = time.monotonic()
        part = self.part(slow)
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual([(s["status"], s["detail"]) for s in part["steps"]], [("incomplete", "begun")])
        time.sleep(max(0, 2.5 - (time.monotonic() - begin)))
        self.assertFalse(mark.exists())

    def test_a_part_ends_at_its_limit_and_the_next_one_follows(self):
        whole = frame.Frame(self.out, 60, dict(version="0", device="gpu"), run.table)
        begin = time.monotonic()
        first = whole.part("first", 0.3, lambda part: part.record("sleep", frame.INCOMPLETE)
                           if part.run(["sleep", "30"]).timed_out else None)
        second = whole.part("second", 5, lambda part: part.record("true", frame.PASSED))
        self.assertLess(time.monotonic() - begin, 3)
        self.assertEqual((first, second), ("incomplete", "passed"))
        self.assertEqual(whole.results()["status"], "incomplete")
        whole.log.close()

    def test_the_whole_has_a_limit_too(self):
        whole = frame.Frame(self.out, 0.2, dict(version="0", device="gpu"), run.table)
        time.sleep(0.25)
        self.assertEqual(whole.part("late", 10, lambda part: self.fail("started")), "incomplete")
        whole.log.close()

    def test_an_error_fails_its_part_only(self):
        whole = frame.Frame(self.out, 60, dict(version="0", device="gpu"), run.table)
        self.assertEqual(whole.part("broken", 5, lambda part: 1 / 0), "failed")
        self.assertEqual(whole.part("next", 5, lambda part: part.record("fine", frame.PASSED)), "passed")
        self.assertEqual(whole.results()["status"], "failed")
        whole.log.close()

    def test_results_are_written_as_they_come(self):
        seen = []
        def function(_, part):
            part.record("one", frame.PASSED)
            seen.append(json.loads((self.out / "results.json").read_text())["parts"][0]["steps"])
        self.part(function)
        self.assertEqual([step["name"] for step in seen[0]], ["one"])

    def test_skipped_passes_nothing(self):
        self.assertEqual(frame.status_of([]), "skipped")
        self.assertEqual(frame.status_of(["skipped", "skipped"]), "skipped")
        self.assertEqual(frame.status_of(["skipped", "passed"]), "passed")
        self.assertEqual(frame.status_of(["passed", "incomplete"]), "incomplete")
        self.assertEqual(frame.status_of(["incomplete", "failed", "passed"]), "failed")

    def test_told_to_stop_it_keeps_what_it_has(self):
        self.add("kernel_test", "kernels", "#!/bin/sh\nsleep 60\n")
        self.pack()
        for script in make_pack.SCRIPTS:
            (self.folder / "script").mkdir(exist_ok=True)
            (self.folder / "script" / script.name).write_text(script.read_text())
        program = self.folder / "run"
        program.write_text((HERE / "run.py").read_text())
        process = subprocess.Popen([sys.executable, program, "--out", self.out], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("tests"):
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
        self.assertEqual(process.returncode, 1)
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual([part["name"] for part in results["parts"]], ["device", "tests"])
        self.assertEqual([part["status"] for part in results["parts"]], ["passed", "incomplete"])


class Tests(Pretended):
    def test_a_planted_failure_is_a_failure(self):
        self.add("kernel_test", "kernels", GTEST.format(tests=[
            dict(name="Good", result="COMPLETED"), dict(name="Bad", result="COMPLETED", failures=[{}])]))
        part = self.part(parts.tests)
        self.assertEqual(part["status"], "failed")
        self.assertIn("Suite.Bad", part["steps"][0]["detail"])

    def test_only_tests_that_reached_the_device_count(self):
        host = dict(name="Host", result="COMPLETED")
        self.add("test", "host", GTEST.format(tests=[host]))
        self.add("test", "both", GTEST.format(tests=[host, dict(name="Device", result="COMPLETED", device="cuda")]))
        self.add("test", "skipping", GTEST.format(tests=[dict(name="Skipped", result="SKIPPED")]))
        self.assertEqual(self.steps(parts.tests), dict(host="skipped", both="passed", skipping="skipped"))

    def test_a_crash_is_a_failure_and_no_device_a_skip(self):
        self.add("test", "crash", "#!/bin/sh\nkill -SEGV $$\n")
        self.add("test", "nodevice", "#!/bin/sh\nexit 7\n")
        self.assertEqual(self.steps(parts.tests), dict(crash="failed", nodevice="skipped"))

    def test_a_hanging_test_is_incomplete_and_the_others_are_kept(self):
        self.add("test", "fast", GTEST.format(tests=[dict(name="A", result="COMPLETED", device="cuda")]))
        self.add("test", "hangs", "#!/bin/sh\nsleep 60\n")
        self.assertEqual(self.steps(parts.tests, seconds=2), dict(fast="passed", hangs="incomplete"))

    def test_no_tests_at_all_are_a_failure(self):
        self.assertEqual(self.steps(parts.tests), dict(tests="failed"))


class Goldens(Pretended):
    def test_right_and_wrong_results(self):
        self.add("goldens", "ptx_goldens", GOLDENS.format(mine=self.goldens))
        self.assertEqual(self.part(parts.goldens)["status"], "passed")
        self.programs.pop("goldens")
        self.add("goldens", "ptx_goldens", GOLDENS.format(mine=self.goldens.replace("7", "6")))
        self.assertEqual(self.part(parts.goldens)["steps"][0]["status"], "failed")

    def test_a_comparison_that_never_complains_is_a_failure(self):
        self.add("goldens", "ptx_goldens", "#!/bin/sh\necho '2 cases, 0 differ'\n")
        self.assertEqual(self.steps(parts.goldens), {"instructions": "passed", "planted wrong results": "failed"})


class Sanitizer(Pretended):
    def sanitize(self, text):
        self.add("canary", "canary", "#!/bin/sh\n")
        self.add("kernel_test", "kernels", "#!/bin/sh\n")
        self.add("sanitizer", "compute-sanitizer", text)
        found, parts.find_sanitizer = parts.find_sanitizer, lambda: str(self.folder / "bin" / "compute-sanitizer")
        try:
            return self.steps(parts.sanitizer)
        finally:
            parts.find_sanitizer = found

    def test_all_tools_that_find_their_canary_are_believed(self):
        steps = self.sanitize(sanitizer_script(parts.TOOLS))
        self.assertEqual(set(steps.values()), {"passed"})
        self.assertEqual(len(steps), 8)

    def test_a_tool_that_misses_its_canary_is_a_failure_and_says_nothing_of_kernels(self):
        steps = self.sanitize(sanitizer_script(["memcheck", "initcheck", "synccheck"]))
        self.assertEqual(steps["racecheck: canary"], "failed")
        self.assertNotIn("racecheck: kernels", steps)
        self.assertEqual(steps["memcheck: kernels"], "passed")

    def test_a_finding_is_a_failure(self):
        steps = self.sanitize(sanitizer_script(parts.TOOLS, ["kernels"]))
        self.assertEqual({steps[f"{tool}: kernels"] for tool in parts.TOOLS}, {"failed"})

    def test_a_finding_counts_though_the_time_ran_out(self):
        self.assertEqual(parts.findings("========= Invalid __global__ read of size 4 bytes\n========= at f()\n"), 1)
        self.assertEqual(parts.findings("========= COMPUTE-SANITIZER\nInvalid\n"), 0)
        self.assertEqual(parts.findings("========= Error: Race reported\n========= RACECHECK SUMMARY: 1 hazard\n"), 1)

    def test_a_tool_that_does_not_know_the_device_is_skipped(self):
        steps = self.sanitize("#!/bin/sh\necho 'Error: Device not supported'\nexit 1\n")
        self.assertEqual(set(steps.values()), {"skipped"})


class Benchmarks(Pretended):
    def bench(self, name, cases):
        lists = "\n".join(cases)
        runs = {case: json.dumps(dict(benchmarks=[dict(case_result, name=case, time_unit="us", run_type="iteration")]),
                                 indent=1) for case, case_result in cases.items()}
        self.add("bench", name, f'''#!/usr/bin/env python3
import re, sys
if "--benchmark_list_tests" in sys.argv: print({lists!r}); sys.exit()
pattern = sys.argv[1].split("=", 1)[1]
for name, text in {runs!r}.items():
    if re.match(pattern, name): print("context"); print(text)
''')

    def test_rates_are_shares_of_the_copy_bandwidth(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=3.0, bytes_per_second=3e12)})
        self.bench("cuda_copy_bench", {"copy/1024": dict(real_time=5.0, bytes_per_second=4e12)})
        part = self.part(parts.benchmarks)
        self.assertEqual(part["status"], "passed")
        self.assertEqual([step["name"] for step in part["steps"]], ["copy/1024", "op/1"])
        self.assertEqual(part["steps"][1]["percent_of_copy"], 75.0)

    def test_products_are_shares_of_the_fastest_of_cublaslt(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=3.0, flops_per_second=2e14)})
        self.bench("cuda_cublaslt_bench", {"cublaslt/bf16": dict(real_time=5.0, flops_per_second=8e14),
                                           "cublaslt/f32": dict(real_time=5.0, flops_per_second=4e13)})
        part = self.part(parts.benchmarks)
        self.assertEqual([step.get("percent_of_cublaslt") for step in part["steps"]], [None, 5.0, 25.0])

    def test_a_benchmark_with_wrong_results_is_a_failure(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=0, error_occurred=True, error_message="y is off")})
        self.assertEqual(self.steps(parts.benchmarks), {"op/1": "failed"})


class Comparisons(Pretended):
    def compare(self, peer):
        """The statuses of one row with a benchmark that takes 10 us."""
        script = self.folder / "peer.py"
        script.write_text("import json, sys\nprint(json.dumps(dict(version='PyTorch')), flush=True)\n"
                          "for line in sys.stdin:\n    variant = json.loads(line)['variant']\n" + peer)
        row = next(row for row in parts.comparisons.ROWS if row.work == "layer_norm_forward")
        self.add("bench", row.program, "#!/bin/sh\necho '" + json.dumps(dict(benchmarks=[
            dict(name=row.benchmark, real_time=10, time_unit="us", run_type="iteration")]), indent=1) + "'\n")

        def function(pack, part):
            with parts.comparisons.Peer(part.left, python=sys.executable, script=script) as process:
                parts.compare_row(part, process, pack.program("bench"), row)
        return [(step["name"].split()[-1], step["status"], step["detail"]) for step in self.part(function, seconds=3)["steps"]]

    def test_ratios_and_what_one_variant_cannot_do(self):
        steps = self.compare("    print(json.dumps(dict(microseconds=25) if variant == 'eager' else "
                             "dict(error='no compiler')), flush=True)\n")
        self.assertEqual(steps, [("eager", "passed", "10.0 us, PyTorch 25.0 us: 2.50 times as long"),
                                 ("compiled", "skipped", "no compiler")])

    def test_the_best_of_several_variants(self):
        steps = self.compare("    print(json.dumps(dict(microseconds=25 if variant == 'eager' else 15)), flush=True)\n")
        self.assertEqual(steps[-1], ("best", "passed", "10.0 us, PyTorch 15.0 us: 1.50 times as long"))
        self.assertEqual(len(steps), 3)

    def test_a_peer_that_hangs_or_ends(self):
        hanging = self.compare("    import time; time.sleep(60)\n")
        self.assertEqual({status for _, status, _ in hanging}, {"incomplete"})
        self.programs.pop("bench")
        ended = self.compare("    break\n")
        self.assertEqual({detail for _, _, detail in ended}, {"PyTorch ended unexpectedly"})


class Emulated(Pretended):
    def test_what_an_emulated_device_cannot_show_is_skipped(self):
        for function in (parts.sanitizer, parts.benchmarks, parts.compare):
            self.assertEqual(self.part(function, device="emulated")["status"], "skipped")

    def test_a_machine_without_a_device_is_skipped(self):
        self.programs.clear()
        self.add("about", "about_device", "#!/bin/sh\nexit 7\n")
        self.assertEqual(self.part(parts.device)["status"], "skipped")


class Packs(Pretended):
    def test_a_pack_above_the_limit_is_refused(self):
        build = self.folder / "build"
        (build / "include" / "heed").mkdir(parents=True)
        (build / "include" / "heed" / "version.h").write_text('#define HEED_VERSION "1.2.3"\n')
        program = pathlib.Path("/bin/sleep")
        (build / "gpu_pack.txt").write_text(f"device\tgpu\nabout\t{program}\n")
        with self.assertRaisesRegex(SystemExit, "more than the 0 allowed"):
            make_pack.make(build, self.folder / "pack", 0.01)
        self.assertFalse((self.folder / "pack").exists())
        make_pack.make(build, self.folder / "pack", 20)
        self.assertEqual(json.loads((self.folder / "pack" / "pack.json").read_text())["version"], "1.2.3")
        self.assertTrue(os.access(self.folder / "pack" / "run", os.X_OK))

    def test_rows_of_comparisons_have_their_work(self):
        work = (HERE / "torch_peer.py").read_text()
        for row in parts.comparisons.ROWS:
            self.assertIn(f"{row.work}={row.work}", work)

    def test_rows_of_comparisons_have_their_benchmark(self):
        for row in parts.comparisons.ROWS:
            source = (BENCHMARKS / f"{row.program.removeprefix('cuda_')}.cpp").read_text()
            self.assertIn(f'"{row.benchmark.split("/")[0]}/', source)
            sizes = ["rows", "cols"] if "rows" in row.arguments else \
                ["sequences", "heads", "length", "width", "causal"] if "heads" in row.arguments else []
            if sizes:
                self.assertIn("{" + ", ".join(str(row.arguments[size]).lower() for size in sizes) + "}", source)

    def test_what_rates_are_shares_of_is_measured(self):
        for reference in ("copy", "cublaslt"):
            self.assertIn(f'"{reference}', (BENCHMARKS / f"{reference}_bench.cpp").read_text())


if __name__ == "__main__":
    unittest.main(buffer=True)
