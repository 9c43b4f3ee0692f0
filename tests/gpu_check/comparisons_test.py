#!/usr/bin/env python3
"""The check's comparisons with a PyTorch that pretends: ratios, what is compiled beside, and one that hangs, ends and talks."""
import json
import sys
import unittest
from unittest import mock

import comparisons
import torch_process
from frame import PASSED
from pretended import WithBenchmarks
from rows import ROWS, STEPS

# Answers as `body` says, which has the question's variant, whether it is only compiled, and `say`.
PEER = '''import json, os, sys, time
def say(**answer): print(json.dumps(answer), flush=True)
open({mark!r}, "a").write("started\\n")
print("a stray line", flush=True)
say(name="about", version="pretended")
for line in sys.stdin:
    question = json.loads(line)
    name, variant, compiles = question["name"], question["variant"], "only_prepare" in question
    folder = os.path.basename(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    open({mark!r}, "a").write(("compile " if compiles else "time ") + name + " " + folder[:5] + "\\n")
    if compiles and {compiles!r}: say(name=name, **{compiles!r}); continue
    {body}
'''


class Comparisons(WithBenchmarks):
    row = next(row for row in ROWS if row.work == "layer_norm_forward")

    def compare(self, body, rows=None, seconds=20, scale=1.0, compiles=dict(prepared=True), ours=10.0):
        """The steps of rows with benchmarks that take 10 us."""
        rows = rows or [self.row]
        script, mark = self.folder / "peer.py", self.folder / "peer.runs"
        mark.write_text("")
        script.write_text(PEER.format(body=body, mark=str(mark), compiles=compiles))
        kept = []

        def function(pack, part):
            pack.timed.update({row.benchmark: ours for row in rows if ours})
            pack.torch = comparisons.Torch(self.out, part.frame.running, python=sys.executable, script=script)
            kept.append((pack.torch.cache, part.frame.running))
            pack.torch.compile(rows)
            comparisons.compare(pack, part, rows)
        steps = self.part(function, seconds=seconds, scale=scale)["steps"]
        self.assertFalse(kept[0][0].exists())
        self.assertEqual(kept[0][1], set())
        self.asked = mark.read_text().splitlines()
        self.assertEqual((steps[0]["name"], steps[0]["detail"]), ("PyTorch", "pretended"))
        return [(step["name"].split(" and PyTorch ")[-1], step["status"], step["detail"]) for step in steps[1:]]

    def test_ratios_and_what_one_variant_cannot_do(self):
        steps = self.compare("say(name=name, **(dict(microseconds=25) if variant == 'eager' else dict(error='no kernel')))")
        self.assertEqual(steps, [("eager", "passed", "10.0 us, PyTorch 25.0 us: 2.50 times as long"),
                                 ("compiled", "skipped", "no kernel"),
                                 ("at its best", "passed", "10.0 us, PyTorch 25.0 us: 2.50 times as long")])

    def test_the_best_of_several_variants_and_the_goals(self):
        row = next(row for row in ROWS if "best" in row.goals)
        steps = self.compare("say(name=name, microseconds=25 if variant == 'cudnn' else 9, how='graph')", [row])
        self.assertEqual(steps[-1], ("at its best", "passed", "10.0 us, PyTorch 9.0 us: 0.90 times as long, goal 1.0: missed"))
        self.assertEqual(steps[0][2], "10.0 us, PyTorch 25.0 us (graph): 2.50 times as long")

    def test_what_is_compiled_is_compiled_by_another_process_first(self):
        self.compare("say(name=name, microseconds=25)")
        compiled = f"{self.row.benchmark} compiled"
        self.assertEqual([line.split(" ", 1)[0] for line in self.asked].count("started"), 2)
        self.assertLess(self.asked.index(f"compile {compiled} heed-"), self.asked.index(f"time {compiled} heed-"))

    def test_what_cannot_be_compiled_is_skipped(self):
        steps = self.compare("say(name=name, microseconds=25)", compiles=dict(error="no compiler"))
        self.assertEqual(steps[1], ("compiled", "skipped", "no compiler"))
        self.assertEqual(steps[0][1], "passed")

    def test_one_that_hangs_is_ended_and_the_others_are_timed_by_a_new_one(self):
        steps = self.compare("time.sleep(60) if variant == 'eager' else say(name=name, microseconds=25)", scale=0.05)
        self.assertEqual([step[:2] for step in steps],
                         [("eager", "incomplete"), ("compiled", "passed"), ("at its best", "passed")])

    def test_one_that_ends_too(self):
        steps = self.compare("os._exit(1) if variant == 'eager' else say(name=name, microseconds=25)")
        self.assertEqual(steps[0], ("eager", "skipped", "PyTorch ended unexpectedly"))
        self.assertEqual(steps[1][:2], ("compiled", "passed"))

    def test_one_that_always_ends_is_left_after_a_while(self):
        rows = list(ROWS[:6])
        steps = self.compare("os._exit(1)", rows)
        self.assertEqual(steps[-1], ("the rest", "incomplete", f"PyTorch ends too often, 3 rows from {rows[3].benchmark} on"))
        self.assertLess(self.asked.count("started"), 10)

    def test_rubbish_between_answers_is_none(self):
        rubbish = "print('{broken'); print('[1]'); print(json.dumps('text')); say(other=1)"
        steps = self.compare(rubbish + "; say(name=name, microseconds=25)")
        self.assertEqual({status for _, status, _ in steps}, {"passed"})

    def test_no_device_for_pytorch_is_said(self):
        script = "import json\nprint(json.dumps(dict(name='about', error='sees no CUDA device')))\n"
        (self.folder / "none.py").write_text(script)
        peer = torch_process.Peer(sys.executable, self.folder, self.folder / "log", set(), script=self.folder / "none.py")
        self.addCleanup(peer.close)
        self.assertEqual(peer.start(10)["error"], "sees no CUDA device")
        self.assertEqual(peer.wait("another", 10)["error"], "sees no CUDA device")

        def function(pack, part):
            pack.torch = comparisons.Torch(self.out, part.frame.running, python=sys.executable, script=self.folder / "none.py")
            pack.torch.compile(ROWS)
            comparisons.compare(pack, part)
        steps = self.part(function)["steps"]
        self.assertEqual([(step["status"], step["detail"]) for step in steps], [("skipped", "sees no CUDA device")])

    def test_heeds_time_is_taken_where_it_is_not_known_yet(self):
        self.bench(self.row.program, {self.row.benchmark: dict(real_time=5.0)})
        steps = self.compare("say(name=name, microseconds=25)", ours=None)
        self.assertIn(("eager", "passed", "5.0 us, PyTorch 25.0 us: 5.00 times as long"), steps)

    def test_all_that_is_compiled_is_asked_for_at_once(self):
        mark, script = self.folder / "peer.runs", self.folder / "peer.py"
        mark.write_text("")
        script.write_text(PEER.format(body="pass", mark=str(mark), compiles=dict(prepared=True)))
        torch = comparisons.Torch(self.folder, set(), python=sys.executable, script=script)
        self.addCleanup(torch.close)
        rest = [row for row in ROWS if row not in STEPS]
        torch.compile(STEPS, rest)
        for row, variant in ((STEPS[-1], "compiled_graph"), (rest[-1], "compiled")):
            asked = torch_process.question(row, variant)
            self.assertEqual(torch.compiled(asked, 20), dict(prepared=True, name=asked["name"]))
        self.assertEqual(torch.compiled(torch_process.question(STEPS[0], "eager"), 1), {})

    def test_a_run_begins_with_compiling(self):
        mark, script = self.folder / "peer.runs", self.folder / "peer.py"
        script.write_text(PEER.format(body="pass", mark=str(mark), compiles=dict(prepared=True)))
        kept = []

        def function(pack, part):
            comparisons.begin(pack, part)
            kept.append(pack.torch)
            pack.torch.compiled(torch_process.question(STEPS[-1], "compiled_graph"), 20)
            pack.torch.close()
        with mock.patch.object(comparisons, "python_with_torch", lambda: sys.executable), \
                mock.patch.object(torch_process.Peer.__init__, "__defaults__", ("cuda", script)):
            self.assertEqual(self.part(function)["status"], "passed")
        self.assertEqual(len(kept[0].compilers), 2)
        self.assertIn(f"compile {STEPS[-1].benchmark} compiled_graph heed-", mark.read_text().splitlines())

    def test_without_a_gpu_or_pytorch_it_is_skipped(self):
        self.assertEqual(self.part(comparisons.begin, device="emulated")["status"], "skipped")
        self.assertEqual(self.part(comparisons.compare)["status"], "skipped")

    def test_times_of_one_side_alone_are_kept(self):
        def function(_, part):
            comparisons.record_ratio(part, "x", None, 3.0, None, {})
        step = self.part(function)["steps"][0]
        self.assertEqual((step["status"], json.dumps(step["theirs"])), (PASSED, "3.0"))


if __name__ == "__main__":
    unittest.main(buffer=True)
