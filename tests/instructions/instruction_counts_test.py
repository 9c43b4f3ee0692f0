#!/usr/bin/env python3
"""What instruction_counts.py reads from a profile, and what it says of counts that grew."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import instruction_counts  # noqa: E402

# The work calls a kernel, which calls a product, which calls back.
PROFILE = """\
# callgrind format
version: 1
positions: line
events: Ir
ob=(1) counted_work
fl=(1) ???
fn=(1) heed_counted
0 7
cfn=(2) heed::cpu::forward(heed::kernels::LinearForward<float> const&)
calls=1 0
0 1990

fn=(2)
0 90
0
cfn=(3) void heed::cpu::N_AVX2::gemm_block_f32(heed::cpu::GemmBlock<float> const&)
calls=1 0
0 1900

fn=(3)
0 1850
cfn=(4) heed::cpu::finish_rows(void*)
calls=1 0
0 50

fn=(4)
+2 50
"""


class InstructionCounts(unittest.TestCase):
    def test_products_are_left_out_and_what_they_call_is_not(self):
        self.assertEqual(instruction_counts.parse_profile(PROFILE), (147, 1850))

    def test_a_slowdown_of_six_per_cent_is_named_with_count_and_limit(self):
        limits = {"softmax": 1000, "gelu": 2000}
        found = instruction_counts.complaints({"softmax": 1060, "gelu": 2000}, limits)
        self.assertEqual(found, ["softmax: 1,060 instructions, 6.0 % more than its limit of 1,000"])

    def test_five_per_cent_is_the_least_that_fails(self):
        limits = {"gelu": 2000}
        self.assertEqual(instruction_counts.complaints({"gelu": 2099}, limits), [])
        self.assertEqual(len(instruction_counts.complaints({"gelu": 2100}, limits)), 1)

    def test_work_without_a_limit_and_a_limit_without_work_fail(self):
        self.assertEqual(instruction_counts.complaints({"new": 1}, {"old": 1}),
                         ["new: has no limit", "old: has a limit but did not run"])

    def test_limits_are_read_as_they_were_written(self):
        counts = {"attention, 2 heads of 256 tokens": 3565583, "softmax backward": 7}
        self.assertEqual(instruction_counts.read_limits(instruction_counts.write_limits(counts, "GNU 12")),
                         ("GNU 12", counts))


if __name__ == "__main__":
    unittest.main()
