#!/usr/bin/env python3
"""The check's benchmarks: shares of the ceilings, and programs that hang, crash, talk rubbish and leave broken reports."""
import json
import re
import unittest

import benchmarks
import comparisons
import profiler
import rows
import runs
from pretended import HERE, WithBenchmarks

ROOT = HERE.parents[1]
SOURCES = ROOT / "bench" / "cuda"
KERNELS = ROOT / "kernels" / "cuda"


class Benchmarks(WithBenchmarks):
    def test_rates_are_shares_of_the_copy_bandwidth(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=3.0, bytes_per_second=3e12)})
        self.bench("cuda_copy_bench", {"copy/1024": dict(real_time=5.0, bytes_per_second=4e12, least_us=4.5, most_us=6)})
        part = self.part(benchmarks.all_of_them)
        self.assertEqual(part["status"], "passed")
        self.assertEqual([step["name"] for step in part["steps"]], ["copy/1024", "op/1"])
        self.assertEqual(part["steps"][1]["percent_of_copy"], 75.0)
        self.assertEqual((part["steps"][0]["microseconds"], part["steps"][0]["least"], part["steps"][0]["most"]), (5.0, 4.5, 6))
        self.assertEqual(self.runs_of("cuda_a_bench"), [[".", "10"]])

    def test_products_are_shares_of_the_fastest_of_cublaslt(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=3.0, flops_per_second=2e14)})
        self.bench("cuda_cublaslt_bench", {"cublaslt/bf16": dict(real_time=5.0, flops_per_second=8e14),
                                           "cublaslt/f32": dict(real_time=5.0, flops_per_second=4e13)})
        part = self.part(benchmarks.all_of_them)
        self.assertEqual([step.get("percent_of_cublaslt") for step in part["steps"]], [100.0, 5.0, 25.0])

    def test_a_benchmark_with_wrong_results_is_a_failure(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=0, error_occurred=True, error_message="y is off"),
                                    "op/2": dict(real_time=1.0)})
        self.assertEqual(self.steps(benchmarks.all_of_them), {"op/1": "failed", "op/2": "passed"})

    def test_after_a_crash_each_benchmark_has_a_process_of_its_own(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=1.0), "op/2": "dies", "op/3": dict(real_time=3.0)})
        part = self.part(benchmarks.all_of_them)
        self.assertEqual([(step["name"], step["status"]) for step in part["steps"]],
                         [("op/1", "passed"), ("cuda_a_bench", "failed"), ("op/2", "failed"), ("op/3", "passed")])
        self.assertIn("SIGSEGV after 1 results", part["steps"][1]["detail"])

    def test_after_a_hang_too(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=1.0), "op/2": "hangs", "op/3": dict(real_time=3.0)})
        steps = self.steps(benchmarks.all_of_them, scale=2 / benchmarks.SILENCE)
        self.assertEqual(steps, {"op/1": "passed", "cuda_a_bench": "incomplete", "op/2": "incomplete", "op/3": "passed"})

    def test_a_broken_report_costs_what_it_breaks(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=1.0), "op/2": "breaks", "op/3": dict(real_time=3.0)})
        steps = self.steps(benchmarks.all_of_them)
        self.assertEqual(steps["op/1"], "passed")
        self.assertNotIn("error", steps)

    def test_no_results_are_a_failure(self):
        self.bench("cuda_a_bench", {"op/1": "says nothing"})
        self.add("bench", "cuda_b_bench", "#!/bin/sh\necho rubbish\n")
        self.assertEqual(self.steps(benchmarks.all_of_them),
                         {"cuda_a_bench": "failed", "op/1": "failed", "cuda_b_bench": "failed"})

    def test_results_are_recorded_while_the_program_runs(self):
        self.bench("cuda_a_bench", {"op/1": dict(real_time=1.0), "op/2": "hangs"})
        seen = []

        class Seen(benchmarks.Recorder):
            def tell(self, name, run):
                super().tell(name, run)
                seen.append(json.loads(self.part.frame.out.joinpath("results.json").read_text())["parts"][0]["steps"][-1]["name"])

        def function(pack, part):
            recorder = Seen(pack, part)
            benchmarks.run_once(part, pack.program("bench"), None, 1, recorder.tell)
        self.part(function, seconds=2)
        self.assertEqual(seen, ["op/1"])

    def test_a_first_contact_times_few_batches_of_the_main_ones(self):
        self.bench("cuda_step_bench", {"training_step/f32/graph": dict(real_time=1.0)})
        self.bench("cuda_memory_bench", {"gelu/1": dict(real_time=1.0)})
        self.assertEqual(self.steps(benchmarks.first), {"training_step/f32/graph": "passed"})
        self.assertEqual(self.runs_of("cuda_step_bench"), [[".", str(benchmarks.FIRST_BATCHES)]])

    def test_an_emulated_device_runs_the_main_ones(self):
        self.bench("cuda_layer_norm_bench", {"layer_norm_forward/f32/37/96": dict(real_time=1.0)})
        self.assertEqual(self.steps(benchmarks.first, device="emulated"), {"layer_norm_forward/f32/37/96": "passed"})
        self.assertEqual(self.part(benchmarks.all_of_them, device="emulated")["status"], "skipped")

    def test_again_says_how_far_times_can_be_trusted(self):
        self.bench("cuda_step_bench", {"training_step/f32/graph": dict(real_time=30.0)})

        def function(pack, part):
            pack.timed["training_step/f32/graph"] = 20.0
            comparisons.again(pack, part)
        self.assertEqual(self.part(function)["steps"][-1]["detail"], "1.50 in the middle, 1.50 to 1.50")


def sizes_in(source, name):
    """Whether a benchmark's sizes stand in its source."""
    numbers = re.findall(r"/(\d+)", name)
    if not numbers:
        return True
    for spelt in ({"0": "false", "1": "true"}, {}):
        last = spelt.get(numbers[-1], numbers[-1]) if len(numbers) == 5 else numbers[-1]
        if ", ".join([*numbers[:-1], last]) in source:
            return True
    return False


class Sources(unittest.TestCase):
    """What the check names is there."""

    def check(self, program, benchmark):
        source = (SOURCES / f"{program.removeprefix('cuda_')}.cpp").read_text()
        self.assertIn(f'"{benchmark.split("/")[0]}/', source)
        self.assertTrue(sizes_in(source, benchmark), benchmark)

    def test_rows_have_their_benchmark_and_their_work(self):
        work = (HERE / "torch_work.py").read_text()
        for row in rows.ROWS:
            self.check(row.program, row.benchmark)
            self.assertIn(f"def {row.work}(", work)

    def test_profiles_have_their_benchmark_and_their_kernels(self):
        for profile in profiler.PROFILES:
            self.check(profile.program, profile.benchmark)
            for source in profile.sources:
                defined = re.findall(r"__global__ .*?\b(\w+_kernel)\(", (KERNELS / source).read_text(), re.S)
                found = [name for name in defined if re.fullmatch(profile.kernels, name)]
                self.assertEqual(len(found), profile.launches, f"{profile.kernels} in {source}: {defined}")

    def test_profiles_of_attention_over_long_sequences_know_both_paths(self):
        for profile in profiler.PROFILES:
            if re.match("attention_.*/4096/", profile.benchmark):
                self.assertEqual({source.split("/")[0] for source in profile.sources}, {"attention", "hopper"})

    def test_the_main_ones_are_among_the_rows(self):
        expected = dict(cuda_layer_norm_bench=4, cuda_attention_bench=4, cuda_step_bench=1)
        for name, pattern in benchmarks.FIRST.items():
            found = [row for row in rows.ROWS if row.program == name and re.search(pattern or ".", row.benchmark + "/")]
            self.assertEqual(len(found), expected.get(name, 0))

    def test_what_rates_are_shares_of_is_measured(self):
        for reference in ("copy", "cublaslt"):
            self.assertIn(f'"{reference}', (SOURCES / f"{reference}_bench.cpp").read_text())
        self.assertIn(benchmarks.first, [function for _, function, _ in runs.FIRST])


if __name__ == "__main__":
    unittest.main(buffer=True)
