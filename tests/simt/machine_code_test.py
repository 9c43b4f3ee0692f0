#!/usr/bin/env python3
"""What machine_code.py says of disassembled kernels, right and wrong."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import machine_code  # noqa: E402
import sass  # noqa: E402
from planned_kernels import Launch  # noqa: E402

ROWS = "_ZN4heed4cuda9softmax_cu14forward_kernelIfNS0_9RowLayoutILi32ELi4ELi8ELb0EEEEEvNS_7kernels14SoftmaxForwardIT_EE"
ANY_ROWS = ROWS.replace("Li32ELi4ELi8E", "Li32ELi1ELi8E")
F32_ROWS = "_ZN4heed4cuda14sorted_rows_cu11sum_kernelIfLi4EEEvNS0_7RowSumsIT_EENS1_6SortedE"
PARTIALS = "_ZN4heed4cuda14column_sums_cu19add_partials_kernelENS_4simt9DependentINS0_10ColumnSumsEEE"
ELEMENTS = "_ZN4heed4cuda14vectors_kernelINS1_9ForwardOpINS_8bfloat16EEELi8EEEvT_l"
DEPENDENT = ROWS.replace("NS_7kernels14SoftmaxForwardIT_EE", "NS_4simt9DependentINS_7kernels14SoftmaxForwardIT_EEEE")
NORM = "_ZN4heed4cuda11norm_kernelILi4EEEvNS_4simt9DependentINS0_8NormWorkEEE"


def listing(function, *instructions):
    lines = [f"\t\tFunction : {function}", '\t.headerflags\t@"EF_CUDA_SM90"']
    lines += [f"        /*{16 * i:04x}*/                   {text} ;      /* 0x000000040204x981 */"
              for i, text in enumerate(instructions)]
    return "\n".join(lines) + "\n"


def complaints(*listings):
    return machine_code.complaints("softmax", machine_code.functions("".join(listings)))


def early(*listings):
    return machine_code.early_accesses("norm", machine_code.functions("".join(listings)))


# A loop over tiles: each is copied, then multiplied without masks, by two HMMA, or with masks, by one.
TILES = ("MOV R1, R2", "LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64]", "@P0 BRA 0x90",
         *["HMMA.16816.F32.BF16 R4, R8, R12, R4", "LDSM.16.M88.4 R8, [R2]"] * 2, "MUFU.EX2 R5, R5", "BRA 0xc0",
         "FSEL R5, R5, R6, P1", "HMMA.16816.F32.BF16 R4, R8, R12, R4", "FSEL R5, R5, R6, P1", "@P2 BRA 0x10", "EXIT")


def costly(needs):
    """Of the way through the tiles that does what it says."""
    graph = sass.Graph(sass.instructions(listing("flash", *TILES)))
    loop = sass.Loop("HMMA", rounds=64, needs=needs)
    launch = Launch("attention_flash", "flash_forward_kernelILi64ELb0E", 4, sass.Loop(loops=[loop]))
    return machine_code.costly_products("sm_80", lambda object_, function: graph, [launch])


class MachineCode(unittest.TestCase):
    def test_the_wait_comes_first(self):
        self.assertEqual(early(listing(DEPENDENT, "S2R R0, SR_TID.X", "ACQBULK", "PREEXIT", "LDG.E R4, desc[UR4][R2.64]"),
                               listing(ROWS, "LDG.E R4, desc[UR4][R2.64]")), [])

    def test_memory_before_the_wait(self):
        for access in ("LDG.E R4, desc[UR4][R2.64]", "@P0 STG.E desc[UR4][R6.64], R8", "LDGSTS.E [R4], desc[UR4][R2.64]",
                       "REDG.E.ADD.F32.FTZ.RN desc[UR4][R2.64], R0", "ATOMG.E.CAS R4, desc[UR4][R2.64], R6"):
            wrong = early(listing(DEPENDENT, access, "ACQBULK"))
            self.assertEqual(wrong, [f"norm: {DEPENDENT} uses memory before it waits for the kernels in front of it"])

    def test_no_wait(self):
        self.assertEqual(early(listing(DEPENDENT, "LDG.E R4, desc[UR4][R2.64]")),
                         [f"norm: {DEPENDENT} does not wait for the kernels in front of it"])
        self.assertEqual(early(listing(ROWS, "ACQBULK")), ["norm: no kernel has to wait, by its name"])

    def test_vectors_of_16_bytes(self):
        self.assertEqual(complaints(listing(ROWS, "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R6.64], R8",
                                            "LDG.E R3, desc[UR4][R2.64]")), [])
        self.assertEqual(complaints(listing(ELEMENTS, "@P0 LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64]",
                                            "STG.E.128 desc[UR4][R6.64], R8")), [])

    def test_narrow_accesses(self):
        loads = complaints(listing(ROWS, "LDG.E R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R6.64], R8"))
        self.assertEqual(len(loads), 1)
        self.assertIn(f"{ROWS} loads no 16 bytes at once", loads[0])
        stores = complaints(listing(ELEMENTS, "LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.64 desc[UR4][R6.64], R8"))
        self.assertEqual(len(stores), 1)
        self.assertIn(f"{ELEMENTS} stores no 16 bytes at once", stores[0])

    def test_a_store_of_16_bytes_that_became_four(self):
        right = ["LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R6.64], R8"]
        single = ["STG.E desc[UR4][R6.64], R8", "STG.E desc[UR4][R6.64+0x4], R9", "STG.E.U16 desc[UR4][R6.64], R10"]
        self.assertEqual(complaints(listing(ELEMENTS, *right, *single, "STG.E.64 desc[UR4][R6.64], R8")), [])
        self.assertEqual(complaints(listing(ELEMENTS, *right, *single, "@P0 STG.E desc[UR4][R6.64+0xc], R11")),
                         [f"softmax: {ELEMENTS} stores at most 4 bytes at 4 places, beside 16 at once"])

    def test_f32(self):
        self.assertEqual(len(complaints(listing(F32_ROWS, "LDG.E R4, desc[UR4][R2.64]", "STG.E desc[UR4][R6.64], R8"))), 2)

    def test_kernels_without_a_vector_form(self):
        self.assertEqual(complaints(listing(PARTIALS, "LDG.E R4, desc[UR4][R2.64]", "STG.E desc[UR4][R6.64], R8")), [])

    def test_rows_that_lie_anywhere_are_read_element_by_element(self):
        vector = listing(ROWS, "LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R6.64], R8")
        self.assertEqual(complaints(vector, listing(ANY_ROWS, "LDG.E R4, desc[UR4][R2.64]", "STG.E desc[UR4][R6.64], R8")), [])

    def test_sums_store_nothing(self):
        self.assertEqual(complaints(listing(NORM, "LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.64 desc[UR4][R6.64], R8")), [])

    def test_local_memory(self):
        wrong = complaints(listing(ROWS, "LDG.E.128 R4, desc[UR4][R2.64]", "STL.64 [R1], R8", "STG.E.128 desc[UR4][R6.64], R8"))
        self.assertEqual(len(wrong), 1)
        self.assertIn("uses local memory", wrong[0])

    def test_names_without_vectors(self):
        load = "LDG.E R4, desc[UR4][R2.64]"
        none = ["softmax: no function works on vectors, by its name"]
        self.assertEqual(complaints(listing("_ZN4heed4copyEPi", load)),
                         ["softmax: _ZN4heed4copyEPi says nothing of vectors, by its name", *none])
        self.assertEqual(complaints(listing(ANY_ROWS, load), listing(PARTIALS, load)), none)
        self.assertEqual(complaints(""), none)

    def test_instructions_of_a_tile_without_masks(self):
        """Not those around the loop, nor those of tiles that have masks."""
        self.assertEqual(costly({"HMMA": 2}), ([], [9 / 2]))

    def test_too_many_instructions_of_a_tile(self):
        self.assertEqual(costly({"HMMA": 1}), (
            ["attention_flash: flash_forward_kernel of width 64, sm_80: a tile without masks takes 6.00 instructions for each "
             "HMMA, more than 5.0"], [6.0]))

    def test_no_loop_of_tiles(self):
        (wrong,), found = costly({"HMMA": 3})
        self.assertIn("attention_flash: flash_forward_kernel of width 64, sm_80: 0 loops have HMMA", wrong)
        self.assertEqual(found, [])

    def test_the_flash_kernels(self):
        self.assertEqual(sorted(machine_code.FLASH), sorted(
            f"flash_{kernel}_kernelILi{width}ELb0E" for kernel in ("forward", "query", "key") for width in (64, 128)))


if __name__ == "__main__":
    unittest.main()
