#!/usr/bin/env python3
"""What sass.py finds in machine code."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import sass  # noqa: E402
from sass import ALL, Loop  # noqa: E402

# Nothing where there are no rows. A loop over rows that may leave out a store, has a loop inside, and calls what is rare from
# behind the end.
ROWS = """
        /*0000*/                   ISETP.GE.AND P0, PT, R2, UR4, PT ;      /* 0x000000040204x981 */
        /*0010*/               @P0 EXIT ;
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/               @P1 BRA 0x60 ;
        /*0040*/                   FADD R5, R5, R6 ;
        /*0050*/                   STG.E.128 desc[UR4][R6.64], R8 ;
        /*0060*/                   FFMA R5, R5, R6, R7 ;
        /*0070*/                   FFMA R5, R5, R6, R7 ;
        /*0080*/              @!P2 BRA 0x60 ;
        /*0090*/              @!P4 BRA P5, 0xe0 ;
        /*00a0*/                   BRA.DIV UR4, 0x100 ;
        /*00b0*/              @!P3 BRA 0x20 ;
        /*00c0*/                   STG.E desc[UR4][R6.64], R8 ;
        /*00d0*/                   EXIT ;
        /*00e0*/                   MUFU.RCP R5, R5 ;
        /*00f0*/                   BRA 0xa0 ;
        /*0100*/                   BRA 0xa0 ;
"""


def graph(text=ROWS):
    return sass.Graph(sass.instructions(text))


def opcodes(text, plan):
    """{opcode: how often it is executed}"""
    found = {}
    for instruction, times in sass.executed(graph(text), plan):
        found[instruction.opcode] = found.get(instruction.opcode, 0) + times
    return found


def rows(rounds=10, needs=None, inner=3):
    return Loop(loops=[Loop("LDG", rounds=rounds, needs=needs, loops=[Loop("FFMA", rounds=inner)])])


class Sass(unittest.TestCase):
    def test_instructions(self):
        code = sass.instructions(ROWS)
        self.assertEqual(len(code), 17)
        self.assertEqual(code[1], (0x10, "P0", "EXIT", ""))
        self.assertEqual(code[8], (0x80, "!P2", "BRA", "0x60"))
        self.assertEqual(code[2].operands, "R4, desc[UR4][R2.64]")

    def test_functions(self):
        texts = sass.texts_of(f"head\n\t\tFunction : one\n{ROWS}\n\t\tFunction : two\n{ROWS}")
        self.assertEqual(list(texts), ["one", "two"])
        self.assertEqual(len(sass.instructions(texts["one"])), 17)

    def test_loops(self):
        found = graph()
        headers = {found.blocks[header][0].address: {found.blocks[block][0].address for block in blocks}
                   for header, blocks in found.loops.items()}
        # What lies behind the end and comes back belongs to the loop; what is for lanes apart is never reached.
        self.assertEqual(headers, {0x20: {0x20, 0x40, 0x60, 0x90, 0xa0, 0xe0}, 0x60: {0x60}})
        self.assertNotIn(0x100, {found.blocks[block][0].address for block in found.successors})

    def test_rounds(self):
        self.assertEqual(opcodes(ROWS, rows()), {"ISETP.GE.AND": 1, "EXIT": 2, "LDG.E.128": 10, "BRA": 10 * (1 + 3 + 1 + 1),
                                                 "FFMA": 60, "BRA.DIV": 10, "STG.E": 1})

    def test_the_way_that_is_needed(self):
        stores = opcodes(ROWS, rows(needs={r"STG\.E\.128": 1}))
        self.assertEqual((stores["STG.E.128"], stores["FADD"]), (10, 10))
        self.assertEqual(opcodes(ROWS, rows(needs={"MUFU": ALL}))["MUFU.RCP"], 10)
        with self.assertRaisesRegex(sass.NoWay, "LDG"):
            sass.executed(graph(), rows(needs={"STG": 2}))

    def test_an_early_exit(self):
        self.assertEqual(opcodes(ROWS, Loop()), {"ISETP.GE.AND": 1, "EXIT": 1})
        self.assertEqual(opcodes(ROWS, Loop(needs={"STG": 1}))["LDG.E.128"], 1)

    def test_rounds_of_an_unrolled_loop(self):
        text = """
        /*0000*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0010*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/               @P0 BRA 0x0 ;
        /*0030*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0040*/               @P0 BRA 0x30 ;
        /*0050*/                   EXIT ;
"""
        code = opcodes(text, Loop(loops=[Loop("LDG", count=8)]))
        self.assertEqual(code["LDG.E"], 8 + 1)  # four rounds of the first loop; the other one's code is passed once
        with self.assertRaises(sass.NoWay):
            sass.executed(graph(text), Loop(loops=[Loop("LDG", rounds=8)]))  # which of the two?
        self.assertEqual(opcodes(text, Loop(loops=[Loop("LDG", rounds=8, every=True)]))["LDG.E"], 8 * 3)

    def test_a_loop_that_lacks_something(self):
        text = ROWS.replace("FFMA", "IMAD")
        self.assertEqual(opcodes(text, Loop(loops=[Loop("LDG", rounds=2, loops=[Loop("IMAD", rounds=5, without="STG")])]))["IMAD"], 20)
        with self.assertRaises(sass.NoWay):
            sass.executed(graph(text), Loop(loops=[Loop("LDG", rounds=2, without="STG")]))

    def test_a_loop_alone(self):
        code = sass.executed_in(graph(), Loop("LDG", rounds=10, loops=[Loop("FFMA", rounds=3)]))
        self.assertEqual(sum(times for _, times in code), 10 * (1 + 1 + 3 * 3 + 3))  # LDG, BRA, the inner loop, and to the end
        with self.assertRaises(sass.NoWay):
            sass.executed_in(graph(), Loop("HMMA", rounds=1))

    def test_a_table_of_targets(self):
        with self.assertRaisesRegex(ValueError, "table"):
            graph("        /*0000*/                   BRX R4 -0x10 ;\n")


if __name__ == "__main__":
    unittest.main()
