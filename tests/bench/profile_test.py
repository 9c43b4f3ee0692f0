"""The profile of a training step: its rows add up, and it tells what kernels have to do. usage: profile_test.py STEP GPT"""
import subprocess
import sys
import unittest

STEP, GPT = sys.argv.pop(1), sys.argv.pop(1)
SMALL = {STEP: ["--d-model=64", "--heads=2", "--encoder-layers=1", "--decoder-layers=1", "--d-ff=128", "--batch=8"],
         GPT: ["--d-model=16", "--heads=2", "--layers=1", "--vocab=32", "--context=8", "--batch=2", "--length=8"]}


class Profile(unittest.TestCase):
    def rows(self, program, *options):
        out = subprocess.run([program, "--profile", *SMALL[program], *options], check=True, capture_output=True, text=True,
                             stdin=subprocess.DEVNULL).stdout.splitlines()
        self.assertIn("products at", out[-1])
        return {line[:30].strip(): line[30:].replace("%", "").split() for line in out[1:-1]}

    def check(self, rows, kernels):
        self.assertLessEqual(kernels, set(rows))
        whole, rest = rows.pop("whole step"), rows.pop("outside of kernels")
        for row in rows.values():
            self.assertEqual(len(row), 7, rows)
        total = sum(float(row[1]) for row in rows.values()) + float(rest[0])
        self.assertAlmostEqual(total, float(whole[0]), delta=0.02 * float(whole[0]) + 0.01 * len(rows))
        for name in kernels:
            calls, ms, share, _, moved, floor, times = rows[name]
            self.assertGreater(float(calls), 0)
            self.assertTrue(0 <= float(share) <= 100 and float(moved) > 0, rows[name])
            floor = 0 if floor == "-" else float(floor)
            if floor >= 0.05:  # of two decimals
                self.assertAlmostEqual(float(times), float(ms) / floor, delta=0.15 * float(times))
            elif floor < 0.005:
                self.assertEqual(times, "-")

    def test_step(self):
        rows = self.rows(STEP)
        self.check(dict(rows), {"linear_forward", "linear_activation_backward", "linear_backward",
                                "attention_forward", "attention_backward",
                                "residual_layer_norm_forward", "residual_layer_norm_backward", "cross_entropy_forward",
                                "embedding_forward", "embedding_backward", "gradient_norm", "adam_step"})
        self.assertEqual(rows["attention_forward"][0], "3.00")  # of the encoder, of the decoder, and across
        self.assertEqual(rows["adam_step"][0], "1.00")
        self.assertGreater(float(rows["linear_forward"][3]), 0)
        self.assertGreater(float(rows["whole step"][4]), 0)

    def test_gpt_in_bf16(self):
        self.check(self.rows(GPT, "--dtype=bf16"), {"linear_forward", "linear_backward", "layer_norm_forward", "adam_step"})


unittest.main()
