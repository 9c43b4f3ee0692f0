#!/usr/bin/env python3
"""What mutate.py changes, and that it excuses only changes of lines that there are."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import mutate  # noqa: E402


class Mutate(unittest.TestCase):
    def labels(self, text):
        return [(number, label) for number, label, _ in mutate.mutants(text)]

    def test_changes(self):
        self.assertEqual(self.labels("#include <a < b>\n  x += a + b;  // a - b\n"),
                         [(2, "x += a - b;  // a - b"), (2, "x = a + b;  // a - b")])
        self.assertEqual(self.labels("  __syncthreads();\n"), [(1, "(removed: __syncthreads();)")])
        self.assertEqual(self.labels("  simt::wgmma_wait<0>(sums);\n"),
                         [(1, "(removed: simt::wgmma_wait<0>(sums);)"), (1, "simt::wgmma_wait<1>(sums);")])

    def test_changed_text(self):
        self.assertEqual([text for _, _, text in mutate.mutants("int a;\na = b / c;\nint d;")], ["int a;\na = b * c;\nint d;"])

    def test_excuses(self):
        self.assertEqual(mutate.read_excuses("# a comment\na - b;\tthe same\n"), {"a - b;": "the same"})
        folder = mutate.ROOT / "kernels/cuda"
        files = [*folder.rglob("*.cu"), *folder.rglob("*.cuh"), *folder.rglob("*.h"), *folder.rglob("*.cpp")]
        there = {label for file in files for _, label, _ in mutate.mutants(file.read_text())}
        self.assertEqual([label for label in mutate.EQUIVALENT if label not in there], [], "no line is changed to these")


if __name__ == "__main__":
    unittest.main()
