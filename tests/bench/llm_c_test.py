"""bench/peers/llm_c.py with a small C program in llm.c's place, which checks the files that it reads and prints lines like
llm.c's, and how compare.py starts it. usage: llm_c_test.py GPT"""
import array
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
import llm_c  # noqa: E402
import peer  # noqa: E402

GPT = sys.argv.pop(1)
SIZES = dict(d_model=8, heads=2, layers=2, vocab=20, context=64)
OPTIONS = [word for name, value in SIZES.items() for word in ("--" + name.replace("_", "-"), str(value))]
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int header[256];
static FILE* open_with(const char* name, int magic, int version) {
  FILE* file = fopen(name, "rb");
  if (!file || fread(header, 4, 256, file) != 256 || header[0] != magic || header[1] != version) exit(2);
  return file;
}
int main() {
  FILE* file = open_with("gpt2_124M.bin", 20240326, 3);
  const int sizes[6] = {64, 20, 2, 2, 8, 128};  // positions, vocabulary, layers, heads, width, padded vocabulary
  if (memcmp(header + 2, sizes, sizeof sizes)) return 3;
  fseek(file, 0, SEEK_END);
  const long c = 8, weights = (ftell(file) - 1024) / 4;
  if (weights != 128 * c + 64 * c + 2 * (12 * c * c + 13 * c) + 2 * c) return 4;
  for (int part = 0; part < 2; ++part) {
    file = open_with(part ? "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"
                          : "dev/data/tinyshakespeare/tiny_shakespeare_train.bin", 20240520, 1);
    unsigned short tokens[20 * 256 + 1];
    if (header[2] != 20 * 256 + 1 || fread(tokens, 2, 20 * 256 + 1, file) != 20 * 256 + 1 || fgetc(file) != EOF) return 5;
    for (int i = 256; i <= 20 * 256; ++i)
      if (tokens[i] != tokens[i - 256]) return 6;
  }
  printf("val loss 9.0\n");
  for (int step = 0; step < STEPS; ++step) {
    if (step == 10) printf("val loss 8.0\n");
    printf("step %d: train loss %f (took %f ms)\n", step, 3.5 - step, 100.0 + step + atoi(getenv("OMP_NUM_THREADS")));
  }
  return 0;
}
"""


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class LlmC(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.weights = self.folder / "first.safetensors"
        subprocess.run([GPT, *OPTIONS, "--weights", self.weights], check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def ask(self, questions, steps=41, options=()):
        (self.folder / "train_gpt2.c").write_text(PROGRAM.replace("STEPS", str(steps)))
        return subprocess.run([sys.executable, llm_c.__file__, *OPTIONS, "--threads", "2", "--weights", self.weights, "--llm-c",
                               self.folder, *options], input=questions, capture_output=True, text=True,
                              env=dict(os.environ, CC="cc"))

    def test_turns(self):
        run = self.ask("run 3\nrun 1\n")
        self.assertEqual(run.returncode, 0, run.stderr)
        about, first, second = map(json.loads, run.stdout.splitlines())
        self.assertEqual(about, dict(name="llm.c", loss=3.5, parameters=20 * 8 + 64 * 8 + 2 * (12 * 8 * 8 + 13 * 8) + 2 * 8))
        self.assertEqual(first, dict(milliseconds=[104, 105, 106]))  # without the first two, with two threads
        self.assertEqual(second, dict(milliseconds=[104]))

    def test_weights_are_in_the_order_of_its_file(self):
        path = self.folder / "checkpoint"
        llm_c.write_checkpoint(type("Options", (), dict(SIZES, weights=self.weights)), path)
        values = array.array("f", path.read_bytes()[1024:])
        named = {name: array.array("f", tensor.data) for name, tensor in peer.read_safetensors(self.weights).items()}
        c, rows = 8, 128 + 64
        self.assertEqual(values[:20 * c], named["embedding.weight"])
        self.assertEqual(set(values[20 * c:128 * c]), {0})
        self.assertEqual(values[128 * c:rows * c], named["position.weight"])
        first_norms = values[rows * c:rows * c + 4 * c]  # weights of both layers, then biases
        self.assertEqual(first_norms, array.array("f", [1] * 2 * c + [0] * 2 * c))
        projections = values[(rows + 4) * c:(rows + 4 + 6 * c) * c]
        self.assertEqual(projections, named["layers.0.self_attn.in_proj_weight"] +
                         named["layers.1.self_attn.in_proj_weight"])

    def test_it_refuses(self):
        for run, what in ((self.ask("", steps=0), "after 0 of 1 steps"), (self.ask("run 9\n", steps=10), "after 10 of 11"),
                          (self.ask("run 19\n"), "at most 18 steps"), (self.ask("", options=["--batch", "8"]), "4 x 64")):
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(what, run.stderr)

    def test_it_is_a_peer_where_it_is_named(self):
        def commands(folder, *options):
            arguments = type("Arguments", (), dict(peers="llm.c", llm_c=folder, python="python3"))
            return compare.peer_commands(compare.PEERS["gpt"], arguments, [*options])

        self.assertEqual(commands("there", "--batch", "4"), [["python3", llm_c.__file__, "--batch", "4", "--llm-c", "there"]])
        self.assertEqual(commands(None), [])
        self.assertEqual(commands("there", "--dtype", "bf16"), [])

    def test_a_program_begins_anew_with_each_start(self):
        out = self.folder / "out.json"
        subprocess.run([sys.executable, compare.__file__, GPT, "--starts", "2", "--rounds", "3", "--steps", "1", "--python",
                        "/bin/false", "--force", "--out", out, *OPTIONS], check=True, capture_output=True)
        found = json.loads(out.read_text())
        self.assertEqual((found["starts"], found["rounds"]), (2, 3))
        self.assertEqual([(peer["steps"], len(peer["ratios"])) for peer in found["peers"]], [(6, 6)])


if __name__ == "__main__":
    os.environ["HEED_NUM_THREADS"] = "1"
    unittest.main()
