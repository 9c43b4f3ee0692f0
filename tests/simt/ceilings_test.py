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

    def outdated(self, change, count=5000):
        """Of a page of kernels whose warps all execute as many instructions, after a change to it."""
        counts = ceilings.Counts(2e7, 1e7, 5e5, 6e8, 1e9, 1e9)
        counted = [(kernel, [(launch, count) for launch in kernel.launches], counts) for kernel in planned_kernels.KERNELS]
        predicted, ceilings.predicted = ceilings.predicted, lambda _: counted
        try:
            return ceilings.outdated({}, change(ceilings.page_of(counted)))
        finally:
            ceilings.predicted = predicted

    def test_outdated_counts(self):
        self.assertEqual(self.outdated(lambda page: page), [])
        self.assertEqual(self.outdated(lambda page: page.replace("5,000 |", "5,450 |")), [])
        wrong = self.outdated(lambda page: page.replace("5,000 |", "6,000 |", 1))
        self.assertEqual(len(wrong), 2)
        self.assertIn("of 5,000 instructions, not", wrong[0])
        self.assertIn("--write", wrong[1])
        lacking = self.outdated(lambda page: "\n".join(line for line in page.split("\n") if "`softmax`" not in line))
        self.assertIn("not any of 0", lacking[0])
        self.assertIn("is no kernel", self.outdated(lambda page: page + "\n| other | `a`: `b_kernel` | 1 | 2 |")[0])

    def test_outdated_predictions(self):
        def changed(column, value):
            """The page with another cell in the row of layer norm's forward."""
            def change(page):
                lines = page.split("\n")
                heads = next(line for line in lines if line.startswith("| Kernel | MB")).split(" | ")
                row = next(i for i, line in enumerate(lines) if line.startswith("| layer norm, forward, 16,384 x 1,024 | 67.1"))
                cells = lines[row].split(" | ")
                cells[heads.index(column)] = value(cells[heads.index(column)])
                return "\n".join([*lines[:row], " | ".join(cells), *lines[row + 1:]])
            return self.outdated(change)

        def scaled(by):
            return lambda cell: ceilings.NUMBER.sub(lambda match: f"{float(match[0]) * by:.1f}", cell)

        for column in ("issue", "integer", "special", "shared", "predicted time", "predicted share", "an H100, at best"):
            self.assertEqual(changed(column, scaled(1.05)), [], column)
            wrong = changed(column, scaled(1.3)) + changed(column, scaled(0.7))
            self.assertEqual(len(wrong), 4, (column, wrong))
            self.assertIn(f"predicted.md: layer norm, forward, 16,384 x 1,024: {column} ", wrong[0])
        for column in ("memory", "goal"):
            self.assertEqual(len(changed(column, scaled(1.05))), 2, column)
        self.assertEqual(changed("memory", lambda cell: cell.replace("**", "")), [])
        self.assertIn(", not nothing", changed("goal", lambda cell: "")[0])

    def test_rows_of_predictions(self):
        lacking = self.outdated(lambda page: page.replace("| rotary, 16,384 x 16 x 64 | 67.1", "| turned | 67.1"))
        self.assertEqual(len(lacking), 3)
        self.assertIn("rotary, 16,384 x 16 x 64: MB 67.1, not nothing; ", lacking[0])
        self.assertIn("turned is no kernel", lacking[1])

    def test_numbers_that_are_too_small_to_show(self):
        self.assertTrue(ceilings.agree("special", "-", "0.1"))
        self.assertFalse(ceilings.agree("special", "-", "0.3"))
        self.assertFalse(ceilings.agree("predicted share", "89 % to 58 %", "89 %"))


if __name__ == "__main__":
    unittest.main()
