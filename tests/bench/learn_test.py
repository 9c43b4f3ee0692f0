"""bench/learn with a small task: what it tells, what it writes for others, and what compare.py makes of it.
usage: learn_test.py LEARN"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.path.insert(0, str(ROOT / "python"))
import compare  # noqa: E402
import heed_safetensors  # noqa: E402
import learning  # noqa: E402

LEARN = sys.argv.pop(1)
TARGET = 0.9
TINY = ["--task", "copy", "--vocab", "8", "--min-length", "1", "--max-length", "3", "--valid-pairs", "16", "--pairs", "320",
        "--d-model", "32", "--heads", "2", "--layers", "1", "--d-ff", "64", "--lr", "0.01", "--warmup", "20",
        "--evaluate-every", "20", "--epochs", "40"]
AIMED = [*TINY, "--target-accuracy", str(TARGET)]
END = 2


def lines(*options, target=TARGET):
    output = subprocess.run([LEARN, *TINY, "--target-accuracy", str(target), *options], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


class Learns(unittest.TestCase):
    def test_until_the_target(self):
        about, *evaluations = lines()
        self.assertEqual(set(about), {"name", "parameters", "loss"})
        self.assertTrue(1 < about["loss"] < 8)
        self.assertEqual([line["step"] for line in evaluations], [20 * (i + 1) for i in range(len(evaluations))])
        self.assertLess(evaluations[-1]["step"], 400)
        for line in evaluations[:-1]:
            self.assertLess(line["token_accuracy"], TARGET)
        self.assertTrue(TARGET <= evaluations[-1]["token_accuracy"] <= 1)

    def test_the_same_again_and_otherwise_with_another_seed(self):
        short = ["--steps", "20"]
        self.assertEqual(lines(*short), lines(*short))
        self.assertNotEqual(lines(*short), lines(*short, "--seed", "7"))

    def test_ends_with_the_recipe(self):
        self.assertEqual([line["step"] for line in lines("--steps", "30", target=1)[1:]], [20, 30])

    def test_without_held_out_pairs_it_refuses(self):
        run = subprocess.run([LEARN, "--valid-pairs", "0"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("--valid-pairs", run.stderr)


class Writes(unittest.TestCase):
    def test_what_others_need(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            self.assertEqual(lines("--write", str(folder), "--steps", "25"), [])
            weights = heed_safetensors.read(folder / "first.safetensors")
            recipe = json.loads((folder / "recipe.json").read_text())
            training, held_out = ([json.loads(line) for line in (folder / name).read_text().splitlines()]
                                  for name in ("training.jsonl", "held_out.jsonl"))
        self.assertEqual(lines("--steps", "1")[0]["parameters"], sum(len(tensor.data) // 4 for tensor in weights.values()))
        self.assertEqual((recipe["last-step"], recipe["target-accuracy"], recipe["threads"]), (25, TARGET, 1))
        self.assertEqual([len(batch["source"]) for batch in training], [32] * 25)  # 10 batches an epoch
        self.assertEqual([len(batch["source"]) for batch in held_out], [16])
        self.assertNotEqual(training[:10], training[10:20])  # fresh pairs in the next epoch
        sources = [[tuple(source) for batch in batches for source in batch["source"]] for batches in (training, held_out)]
        self.assertFalse(set(sources[0]) & set(sources[1]))
        for batch in training + held_out:
            for source, target, labels in zip(batch["source"], batch["target"], batch["labels"]):
                self.assertEqual(source[1:], labels)  # copied, with the end mark
                self.assertEqual(labels[-1], END)
                self.assertEqual(target[1:], labels[:-1])


class Comparison(unittest.TestCase):
    def compare(self, peers, options=()):
        arguments = argparse.Namespace(seed=3, rounds=2)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            found = learning.compare_learning(LEARN, peers, arguments, [*AIMED, *options])
        return found, text.getvalue().splitlines()

    def test_of_a_program_with_itself(self):
        with tempfile.TemporaryDirectory() as folder:  # a peer that does as its recipe says
            peer = pathlib.Path(folder) / "peer.py"
            peer.write_text("import json, subprocess, sys\n"
                            "recipe = json.load(open(sys.argv[1] + '/recipe.json'))\n"
                            f"subprocess.run([{LEARN!r}, *{AIMED!r}, '--seed', str(recipe['seed'])], check=True)\n")
            found, text = self.compare([[sys.executable, str(peer)]])
        self.assertEqual(len(text), 2 * 2 + 2)
        self.assertEqual([row["seed"] for row in found["learned"]], [3, 4])
        for row in found["learned"]:
            ours, theirs = row["runs"]
            self.assertEqual((ours["step"], ours["token_accuracy"]), (theirs["step"], theirs["token_accuracy"]))
            self.assertTrue(0 < ours["ready"] < ours["seconds"])
            self.assertAlmostEqual(ours["milliseconds_per_step"] * ours["step"], 1e3 * (ours["seconds"] - ours["ready"]))
        ours, theirs = found["peers"]
        self.assertEqual(ours["seconds"]["ratios"], [1, 1])
        self.assertEqual(theirs["step"]["ratios"], [1, 1])
        for i, row in enumerate(found["learned"]):
            self.assertEqual(theirs["seconds"]["ratios"][i], row["runs"][1]["seconds"] / row["runs"][0]["seconds"])

    def test_what_has_not_learned_is_refused(self):
        with self.assertRaises(SystemExit) as stop:
            self.compare([], ["--steps", "1"])
        self.assertIn("of the tokens right", str(stop.exception))

    def test_other_weights_are_refused(self):
        peer = [sys.executable, "-c", "print('{\"name\": \"p\", \"parameters\": 1, \"loss\": 1}\\n"
                                      "{\"step\": 1, \"token_accuracy\": 1}')"]
        with self.assertRaises(SystemExit) as stop:
            self.compare([peer])
        self.assertIn("not the same work", str(stop.exception))

    def test_a_program_that_fails_is_refused(self):
        with self.assertRaises(SystemExit) as stop:
            self.compare([["/bin/false"]])
        self.assertIn("ended with 1", str(stop.exception))

    def test_from_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            subprocess.run([sys.executable, compare.__file__, LEARN, "--rounds", "1", "--python", "/bin/false", "--force",
                            "--out", str(out), *AIMED], check=True, capture_output=True)
            result = json.loads(out.read_text())
        self.assertEqual((result["rounds"], result["options"], len(result["peers"])), (1, AIMED, 1))


if __name__ == "__main__":
    os.environ["HEED_NUM_THREADS"] = "1"
    unittest.main()
