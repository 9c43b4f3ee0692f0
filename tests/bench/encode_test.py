"""bench/encode: its vectors do not depend on the batch, and compare.py lets two of it take turns.
usage: encode_test.py ENCODE"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import compare  # noqa: E402

ENCODE = sys.argv.pop(1)
TEXTS = ["a ship", "", "bread and water", "a", "the stars by the ship"]


class Encode(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model"
        shutil.copytree(ROOT / "tests/fixtures/pretrained/bert", self.model)
        words = json.loads((self.model / "config.json").read_text())["vocab_size"]
        known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "ship", "bread", "and", "water", "the", "stars", "by"]
        (self.model / "vocab.txt").write_text("\n".join(known + [f"w{i}" for i in range(len(known), words)]) + "\n")
        (self.folder / "texts").write_text("\n".join(TEXTS))
        self.options = ["--model", str(self.model), "--texts", str(self.folder / "texts"), "--threads", "1"]

    def encode(self, *options, ask=""):
        run = subprocess.run([ENCODE, *self.options, *options], input=ask, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def test_turns(self):
        about, times = self.encode("--batch", "3", ask="run 2\n")
        self.assertEqual(len(about["vectors"]), 4 * 4)  # of four texts: an empty line is none
        self.assertEqual(len(set(about["vectors"])), 4 * 4)
        self.assertEqual([ms > 0 for ms in times["milliseconds"]], [True, True])
        self.assertEqual(self.encode("--batch", "1")[0]["vectors"], about["vectors"])

    def test_other_vectors_are_other_work(self):
        def peer(vectors):
            return type("Peer", (), dict(about=dict(name="x", vectors=vectors)))

        compare.check_same_work([peer([0.5, 0.25]), peer([0.5, 0.25 + 1e-6])], 1e-4)
        for others in ([0.5, 0.26], [0.5]):
            with self.assertRaises(SystemExit):
                compare.check_same_work([peer([0.5, 0.25]), peer(others)], 1e-4)

    def test_what_is_missing_is_named(self):
        run = subprocess.run([ENCODE, *self.options[:2], "--texts", "nowhere"], capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("nowhere", run.stderr)


if __name__ == "__main__":
    os.environ["HEED_NUM_THREADS"] = "1"
    unittest.main()
