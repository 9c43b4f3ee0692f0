#!/usr/bin/env python3
"""What ceilings.py makes of machine code, and of the shapes in planned_kernels.py."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ceilings  # noqa: E402
import planned_kernels  # noqa: E402
import sass  # noqa: E402


class Ceilings(unittest.TestCase):
    def counts(self, *code, times=1):
        lines = "".join(f"        /*{16 * i:04x}*/    {text} ;\n" for i, text in enumerate(code))
        return ceilings.counts_of([(instruction, times) for instruction in sass.instructions(lines)], 10)

    def test_counts(self):
        counts = self.counts("FFMA R5, R5, R6, R7", "PRMT R5, R5, 0x7732, RZ", "MUFU.EX2 R5, R5", "HMMA.16816.F32.BF16 R4, R4, R6, RZ",
                             times=3)
        self.assertEqual(counts, (120, 30, 30, 0, 0, 30 * 4096))

    def test_shared_memory(self):
        for text, moved in (("LDS R4, [R2]", 128), ("LDS.128 R4, [R2]", 512), ("LDSM.16.M88.4 R4, [R2]", 512),
                            ("LDSM.16.MT88.2 R4, [R2]", 256), ("STS.64 [R2], R4", 256), ("SHFL.BFLY PT, R4, R5, 0x1, 0x1f", 128),
                            ("LDGSTS.E.BYPASS.128 [R2], desc[UR4][R6.64]", 512), ("@P0 LDS R4, [R2]", 0),
                            ("LDG.E.128 R4, desc[UR4][R2.64]", 0)):
            self.assertEqual(self.counts(text).shared, 10 * moved, text)

    def test_wgmma(self):
        """Of a warp, a quarter: both operands from shared memory, or the first from registers."""
        both = self.counts("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24")
        self.assertEqual((both.wgmma, both.shared), (10 * 64 * 128 * 16 * 2 / 4, 10 * (64 + 128) * 16 * 2 / 4))
        one = self.counts("HGMMA.64x64x16.F32.BF16 R24, R4, gdesc[UR8].tnspB, R24, gsb0")
        self.assertEqual((one.wgmma, one.shared), (10 * 64 * 64 * 16 * 2 / 4, 10 * 64 * 16 * 2 / 4))

    def test_bounds(self):
        kernel = planned_kernels.Kernel("", ceilings.COPY * 10e-6, [None], small=1, busiest=2.0, share=0.5)
        slots = 132 * ceilings.SCHEDULERS * ceilings.CLOCK
        counts = ceilings.Counts(slots * 2e-6, 0, 0, 0, 0, 0)  # 4 microseconds of the busiest multiprocessor
        best, worst = ceilings.bounds(kernel, counts)
        started = ceilings.LAUNCH + ceilings.NEXT_LAUNCH
        self.assertAlmostEqual(best, 10e-6 + started)
        self.assertAlmostEqual(worst, 14e-6 + started)
        self.assertEqual(ceilings.verdict(kernel, best, worst), "yes")  # 20 microseconds
        self.assertEqual(ceilings.verdict(kernel._replace(share=0.7), best, worst), "if they overlap")
        self.assertEqual(ceilings.verdict(kernel._replace(share=0.9), best, worst), "**no**")
        self.assertEqual(ceilings.verdict(kernel._replace(share=None), best, worst), "")

    def test_bytes(self):
        self.assertEqual(planned_kernels.bytes_of("residual_norm_forward", 10), 4 * 10 * 2)
        self.assertEqual(planned_kernels.bytes_of("residual_norm_backward", 10, without=("gsum",)), 4 * 10 * 2)
        self.assertEqual(planned_kernels.bytes_of("adam_with_master", 10, g=4, m=4, v=4, master=4), 10 * (4 + 8 + 8 + 8 + 2))
        with self.assertRaises(ValueError):
            planned_kernels.bytes_of("no_kernel", 10)

    def test_tiles(self):
        self.assertEqual(planned_kernels.mean_tiles(512, 128, 128, False, "queries"), 4)
        self.assertEqual(planned_kernels.mean_tiles(512, 128, 128, True, "queries"), (1 + 2 + 3 + 4) / 4)
        self.assertEqual(planned_kernels.mean_tiles(512, 128, 64, True, "keys"), (8 + 6 + 4 + 2) / 4)
        self.assertEqual(planned_kernels.mean_tiles(384, 192, 128, True, "queries"), (2 + 3) / 2)


class Page(unittest.TestCase):
    def test_is_of_these_kernels(self):
        """What can be told without machine code."""
        page = ceilings.PAGE.read_text()
        for kernel in planned_kernels.KERNELS:
            self.assertIn(f"| {kernel.title} | ", page)
        listed = {(title, launch) for title, launch, *_ in ceilings.COUNTED.findall(page)}
        found = [(kernel, [(launch, 0) for launch in kernel.launches], None) for kernel in planned_kernels.KERNELS]
        self.assertEqual(listed, {(title, launch) for title, launch, *_ in ceilings.count_rows(found)})

    def test_outdated(self):
        counted = [(kernel, [(launch, 5000) for launch in kernel.launches], None) for kernel in planned_kernels.KERNELS]
        predicted, ceilings.predicted = ceilings.predicted, lambda _: counted
        try:
            page = "\n".join("| " + " | ".join(row) + " |" for row in ceilings.count_rows(counted))
            self.assertEqual(ceilings.outdated({}, page), [])
            self.assertEqual(ceilings.outdated({}, page.replace("5,000 |", "5,450 |")), [])
            wrong = ceilings.outdated({}, page.replace("5,000 |", "6,000 |", 1))
            self.assertEqual(len(wrong), 2)
            self.assertIn("of 5,000 instructions, not", wrong[0])
            self.assertIn("--write", wrong[1])
            lines = page.split("\n")
            self.assertIn("not any of 0", ceilings.outdated({}, "\n".join(lines[1:]))[0])
            self.assertIn("is no kernel", ceilings.outdated({}, page + "\n| other | `a`: `b_kernel` | 1 | 2 |")[0])
        finally:
            ceilings.predicted = predicted


if __name__ == "__main__":
    unittest.main()
