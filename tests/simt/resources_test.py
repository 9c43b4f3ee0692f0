#!/usr/bin/env python3
"""What resources.py says of compiler reports and sources, right and wrong."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import resources  # noqa: E402

SOURCE = """\
namespace heed {
// Budget: 40 registers, 2048 bytes shared.
template <class T, int kThreads,
          int kWidth>
__global__ void __launch_bounds__(threads_of<kThreads>(2))
    scale_kernel(T* out, int n) {
}

constexpr int kRows = 3;

// Budget: 16 registers, 0 bytes shared, 8 bytes stack.
__global__ void copy(int* out) {
}
}
"""


def report(function, registers, shared=0, stack=0, stores=0, loads=0, architecture="sm_90a"):
    memory = f", {shared} bytes smem" if shared else ""
    return f"""\
ptxas info    : Compiling entry function '{function}' for '{architecture}'
ptxas info    : Function properties for {function}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{memory}, 448 bytes cmem[0]
ptxas info    : Compile time = 1.2 ms
"""


SCALE = "_ZN4heed52_GLOBAL__N__8b02b43b_8_scale_cu_303912scale_kernelIfLi32ELi1EEEvPT_i"
SCALE_BF16 = "_ZN4heed52_GLOBAL__N__8b02b43b_8_scale_cu_303912scale_kernelINS_8bfloat16ELi32ELi1EEEvPT_i"
COPY = "_ZN4heed4copyEPi"


def complaints(*reports, source=SOURCE):
    return resources.check("scale.cu", source, resources.usages("".join(reports)))


class Resources(unittest.TestCase):
    def test_kernels_within_their_budgets(self):
        self.assertEqual(complaints(report(SCALE, 40, 2048), report(SCALE_BF16, 32), report(COPY, 16, stack=8)), [])

    def test_one_register_too_many_in_one_instance_for_one_architecture(self):
        wrong = complaints(report(SCALE, 40), report(SCALE_BF16, 41, architecture="sm_80"), report(COPY, 9))
        self.assertEqual(len(wrong), 1)
        self.assertIn("scale.cu:3: scale_kernel takes 41 registers for sm_80, its budget is 40", wrong[0])

    def test_spills_need_a_budget_of_their_own(self):
        source = SOURCE.replace("8 bytes stack.", "8 bytes stack, 12 bytes spilled.")
        self.assertEqual(complaints(report(SCALE, 40), report(COPY, 9, stack=8, stores=4, loads=8), source=source), [])
        wrong = complaints(report(SCALE, 40), report(COPY, 9, stack=8, stores=8, loads=8), source=source)
        self.assertEqual(len(wrong), 1)
        self.assertIn("copy spills 16 bytes for sm_90a", wrong[0])
        for spill in (dict(stores=4), dict(loads=4)):
            wrong = complaints(report(SCALE, 40, **spill), report(COPY, 9))
            self.assertEqual(len(wrong), 1)
            self.assertIn("scale_kernel spills 4 bytes for sm_90a", wrong[0])

    def test_local_memory_and_shared_memory_are_limited(self):
        wrong = complaints(report(SCALE, 40, shared=2049, stack=16), report(COPY, 9, stack=8))
        self.assertEqual(len(wrong), 2)
        self.assertIn("takes 2049 bytes shared", wrong[0])
        self.assertIn("takes 16 bytes stack for sm_90a, its budget is 0", wrong[1])

    def test_a_kernel_without_a_budget_or_without_a_report(self):
        bare = SOURCE.replace("// Budget: 40 registers, 2048 bytes shared.\n", "")
        wrong = complaints(report(SCALE, 33, 4), source=bare)
        self.assertEqual(len(wrong), 2)
        self.assertIn("scale_kernel has no budget", wrong[0])
        self.assertIn("// Budget: 33 registers, 4 bytes shared.", wrong[0])
        self.assertIn("copy: the compiler reports no such kernel", wrong[1])

    def test_a_kernel_that_the_source_hides(self):
        wrong = complaints(report(SCALE, 1), report(COPY, 1), report("_ZN4heed6hiddenEv", 1))
        self.assertEqual(wrong, ["scale.cu: _ZN4heed6hiddenEv is no kernel with a name of its own in this source"])

    def test_kernels_of_headers_count_where_they_are_instantiated(self):
        header = {"rows.cuh": "// Budget: 8 registers, 0 bytes shared.\n__global__ void rows_kernel(int n) {}\n"
                              "__global__ void unused_kernel(int n) {}\n"}
        for registers, wrong in ((8, 0), (9, 1)):
            found = resources.usages(report("_ZN4heed11rows_kernelEi", registers))
            self.assertEqual(len(resources.check("a.cu", "", found, header)), wrong)

    def test_headers_are_found_through_headers(self):
        rows = (resources.ROOT / "kernels/cuda/norm/norm.cu").read_text()
        self.assertIn("kernels/cuda/vector.cuh", resources.headers_of(rows))

    def test_missing_budgets_are_written_and_then_kept(self):
        bare = "\n".join(line for line in SOURCE.split("\n") if "Budget" not in line)
        reports = report(SCALE, 33, 4) + report(COPY, 9, stack=8)
        text = resources.with_budgets(bare, resources.usages(reports))
        self.assertIn("// Budget: 40 registers, 4 bytes shared.\ntemplate <class T", text)
        self.assertIn("// Budget: 16 registers, 0 bytes shared, 8 bytes stack.\n__global__ void copy", text)
        self.assertEqual(complaints(reports, source=text), [])
        self.assertEqual(resources.with_budgets(text, resources.usages(reports)), text)

    def test_a_compiler_that_reports_too_much_fails(self):
        script = pathlib.Path(resources.__file__)
        for spilled, budgets, wrong in ((0, "check", ""), (8, "check", "copy spills 8 bytes for sm_90a"),
                                        (0, "keep", "HEED_BUDGETS is 'keep'; expected check or write")):
            with tempfile.TemporaryDirectory() as folder:
                source, output = pathlib.Path(folder) / "copy.cu", pathlib.Path(folder) / "copy.o"
                source.write_text(SOURCE[SOURCE.index("// Budget: 16"):])
                text = report(COPY, 16, stack=8, stores=spilled)
                compiler = ["sh", "-c", 'echo "$0" >&2; echo code >"$3"', text, source, "-o", output]
                run = subprocess.run([sys.executable, script, *compiler], check=False, text=True, capture_output=True,
                                         env={**os.environ, "HEED_BUDGETS": budgets})
                self.assertIn(wrong, run.stderr)
                self.assertEqual(run.returncode != 0, bool(wrong), run.stderr)
                self.assertEqual(output.exists(), not wrong)
                if not wrong:
                    self.assertIn("16 registers      0 bytes shared    8 stack  sm_90a  _ZN4heed4copyEPi",
                                  output.with_name("copy.o.txt").read_text())


if __name__ == "__main__":
    unittest.main()
