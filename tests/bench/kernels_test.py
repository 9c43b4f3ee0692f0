"""The kernel benchmarks with small shapes: kernels_bench by itself, kernels as compare.py drives it, and what compare.py does
with another program's answers. usage: kernels_test.py KERNELS KERNELS_BENCH"""
import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import compare  # noqa: E402

KERNELS, KERNELS_BENCH = sys.argv.pop(1), sys.argv.pop(1)
TORCH_KERNELS = ROOT / "bench" / "peers" / "torch_kernels.py"


def directions(dtype="f32"):
    """Of all cases, from the table of the peer, which need not be installed."""
    table = next(node.value for node in ast.parse(TORCH_KERNELS.read_text()).body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "OPERATIONS")
    forward = [key.value for key in table.keys] + ["attention", "causal_attention", "linear", "copy", "product"]
    backward = ("layer_norm", "residual_layer_norm", "gelu", "gelu_tanh", "softmax", "attention", "causal_attention", "linear")
    if dtype == "f32":
        forward, backward = [*forward, "lstm", "gru", "conv2d"], [*backward, "lstm", "gru", "conv2d"]
    return {(op, "forward") for op in forward} | {(op, "backward") for op in backward} | {("cross_entropy", "both")}


def output(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


class KernelsBench(unittest.TestCase):
    def run_bench(self, dtype):
        out = json.loads(output([KERNELS_BENCH, "--tiny", f"--dtype={dtype}", "--benchmark_min_time=0.001",
                                 "--benchmark_format=json"]))
        self.assertEqual({tuple(run["name"].split("/")[:2]) for run in out["benchmarks"]}, directions(dtype))
        for run in out["benchmarks"]:
            rate, machine = (("GB/s", "copy GB/s") if "GB/s" in run else ("GFLOP/s", "GEMM GFLOP/s"))
            self.assertNotIn("error_occurred", run)
            self.assertGreater(run["real_time"], 0)
            self.assertTrue(0 < run[rate] < 1e5, run)
            self.assertTrue(0 < run[machine] < 1e5, run)
            self.assertAlmostEqual(run["share"], run[rate] / run[machine], delta=1e-3 * run["share"])

    def test_f32(self):
        self.run_bench("f32")

    def test_bf16(self):
        self.run_bench("bf16")

    def test_an_unknown_option_is_refused(self):
        self.assertNotEqual(subprocess.run([KERNELS_BENCH, "--no-such"], capture_output=True).returncode, 0)


class Comparison(unittest.TestCase):
    def test_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            text = output([sys.executable, compare.__file__, KERNELS, "--tiny", "--rounds", "3", "--milliseconds", "0.1",
                           "--python", "/bin/false", "--force", "--out", str(out)])
            result = json.loads(out.read_text())
        self.assertEqual(len(text.splitlines()), len(result["kernels"]))
        self.assertEqual({tuple(kernel["name"].split("/")[:2]) for kernel in result["kernels"]}, directions())
        for kernel in result["kernels"]:
            ours = kernel["ours"]
            self.assertTrue(0 < ours["least"] <= ours["median"] <= ours["most"], kernel)
            self.assertEqual(len(ours["ratios"]), 3)
            self.assertTrue(kernel["rate"] > 0 and kernel["machine"] > 0 and kernel["share"] > 0, kernel)
            self.assertEqual(kernel["peers"], [])

    def test_only_some(self):
        out = output([sys.executable, compare.__file__, KERNELS, "--tiny", "--cases", "^gelu/", "--rounds", "1",
                      "--milliseconds", "0.1", "--python", "/bin/false", "--force"])
        self.assertEqual([line.split("/")[0] for line in out.splitlines()], ["gelu", "gelu"])

    def test_other_results_are_refused(self):
        class Answers:
            about = dict(name="a program")

            def __init__(self, values):
                self.values = values

            def ask(self, *words):
                return dict(values=self.values)

        ours = Answers([[1.0, -2.0]])
        compare.check_same_values([ours, Answers([[1.0001, -2.0]])], "k", 1e-4)
        for other in ([[1.001, -2.0]], [[1.0]], [[1.0, float("nan")]], []):
            with self.assertRaises(SystemExit):
                compare.check_same_values([ours, Answers(other)], "k", 1e-4)

    def test_ratios_are_of_medians_by_round(self):
        first, second = iter([[1.0, 2.0, 9.0], [2.0]]), iter([[4.0], [6.0]])
        ours, theirs = compare.spreads(compare.times_of([lambda: next(first), lambda: next(second)], 2))
        self.assertEqual((ours["median"], ours["least"], ours["most"], ours["steps"]), (2.0, 1.0, 9.0, 4))
        self.assertEqual(theirs["ratios"], [2.0, 3.0])
        self.assertEqual(theirs["ratio"], 2.5)
        self.assertEqual((ours["ratio_of_medians"], theirs["ratio_of_medians"]), (1.0, 2.5))


if __name__ == "__main__":
    os.environ.setdefault("HEED_NUM_THREADS", "1")
    unittest.main()
