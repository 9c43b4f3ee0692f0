#!/usr/bin/env python3
"""The frame of a check with programs that pretend: time, partial results, and that no failure passes."""
import json
import signal
import subprocess
import sys
import time
import unittest

import frame
import make_pack
import report
import runs
from pretended import HERE, Pretended


class Commands(Pretended):
    def run_script(self, text, seconds=1.0):
        self.add("x", "program", text)
        kept = []
        part = self.part(lambda pack, part: kept.append(part.run([pack.program("x")], seconds)))
        self.assertEqual(part["steps"], [])
        return kept[0]

    def test_a_slow_command_is_ended_with_all_that_it_started(self):
        mark = self.folder / "mark"
        begin = time.monotonic()
        outcome = self.run_script(f"#!/bin/sh\n(sleep 1; touch {mark}) &\necho begun\nsleep 60\n", 0.3)
        self.assertLess(time.monotonic() - begin, 0.9)
        self.assertEqual((outcome.code, outcome.last_line(), outcome.how()), (None, "begun", "its time ran out"))
        time.sleep(max(0, 1.2 - (time.monotonic() - begin)))
        self.assertFalse(mark.exists())

    def test_what_a_command_leaves_behind_does_not_hold_it_up(self):
        outcome = self.run_script("#!/bin/sh\nsleep 30 &\necho done\nexit 3\n", 10)
        self.assertEqual((outcome.code, outcome.output), (3, "done\n"))
        self.assertLess(outcome.seconds, 5)

    def test_a_signal_is_named_and_bytes_of_any_kind_are_read(self):
        outcome = self.run_script("#!/bin/sh\nprintf '\\377\\000\\n'; kill -SEGV $$\n")
        self.assertEqual(outcome.how(), "SIGSEGV")
        self.assertEqual(outcome.output, "\ufffd\0\n")

    def test_the_begin_and_the_end_of_a_flood_are_kept(self):
        outcome = self.run_script("#!/bin/sh\necho begin; head -c 9000000 /dev/zero; echo; echo end\n", 20)
        self.assertEqual(outcome.code, 0)
        self.assertLess(len(outcome.output), 2 << 20)
        self.assertTrue(outcome.output.startswith("begin\n"))
        self.assertEqual(outcome.last_line(), "end")

    def test_a_command_that_is_not_there(self):
        kept = []
        self.part(lambda pack, part: kept.append(part.run([self.folder / "nothing"])))
        self.assertEqual(kept[0].code, 127)


class Frame(Pretended):
    def test_a_part_ends_at_its_limit_and_the_next_one_follows(self):
        whole = self.frame()
        begin = time.monotonic()
        first = whole.part("first", 0.3, lambda part: part.record("sleep", frame.INCOMPLETE)
                           if part.run(["sleep", "30"]).timed_out else None)
        second = whole.part("second", 5, lambda part: part.record("true", frame.PASSED))
        self.assertLess(time.monotonic() - begin, 3)
        self.assertEqual((first, second), ("incomplete", "passed"))
        self.assertEqual(whole.results()["status"], "incomplete")

    def test_the_whole_has_a_limit_too(self):
        whole = frame.Frame(self.out, 0.1, dict(version="0", device="gpu"), report.table)
        self.addCleanup(whole.log.close)
        time.sleep(0.15)
        self.assertEqual(whole.part("late", 10, lambda part: self.fail("started")), "incomplete")

    def test_limits_of_commands_stretch_with_the_whole(self):
        kept = []
        whole = self.frame(scale=0.1)
        whole.part("part", 20, lambda part: kept.append((part.seconds, part.run(["sleep", "30"], 2).seconds)))
        self.assertEqual(kept[0][0], 2)
        self.assertLess(kept[0][1], 1)

    def test_commands_have_the_environment_of_the_check_and_their_own(self):
        whole = frame.Frame(self.out, 60, dict(version="0", device="gpu"), report.table, environment=dict(A="1", B="2"))
        self.addCleanup(whole.log.close)
        kept = []
        whole.part("part", 5, lambda part: kept.append(part.run(["sh", "-c", "echo $A $B"], environment=dict(B="3"))))
        self.assertEqual(kept[0].output, "1 3\n")

    def test_an_error_fails_its_part_only(self):
        whole = self.frame()
        self.assertEqual(whole.part("broken", 5, lambda part: 1 / 0), "failed")
        self.assertEqual(whole.part("next", 5, lambda part: part.record("fine", frame.PASSED)), "passed")
        self.assertEqual(whole.results()["status"], "failed")

    def test_results_are_written_as_they_come(self):
        seen = []

        def function(_, part):
            part.record("one", frame.PASSED)
            seen.append(json.loads((self.out / "results.json").read_text())["parts"][0]["steps"])
        self.part(function)
        self.assertEqual([step["name"] for step in seen[0]], ["one"])

    def test_skipped_passes_nothing(self):
        self.assertEqual(frame.status_of([]), "skipped")
        self.assertEqual(frame.status_of(["skipped", "skipped"]), "skipped")
        self.assertEqual(frame.status_of(["skipped", "passed"]), "passed")
        self.assertEqual(frame.status_of(["passed", "incomplete"]), "incomplete")
        self.assertEqual(frame.status_of(["incomplete", "failed", "passed"]), "failed")


class Report(unittest.TestCase):
    def test_a_summary_is_short_and_keeps_what_failed(self):
        steps = [dict(name=f"step {i}", status="failed" if i == 777 else "passed", detail="x" * 200) for i in range(1000)]
        results = dict(about=dict(version="0", device="gpu"), status="failed", seconds=1.0,
                       parts=[dict(name="part", status="failed", seconds=1.0, limit=2.0, steps=steps)])
        text = report.summary(results)
        self.assertLess(len(text), 11001)
        self.assertIn("failed     step 777", text)
        self.assertRegex(text, "… [0-9]+ more$")
        self.assertEqual(len(report.table(results).splitlines()), 1003)


class Runs(Pretended):
    def copy_of_the_check(self):
        self.pack()
        (self.folder / "script").mkdir(exist_ok=True)
        for script in make_pack.SCRIPTS:
            (self.folder / "script" / script.name).write_text(script.read_text())
        (self.folder / "run").write_text((HERE / "run.py").read_text())
        return [sys.executable, self.folder / "run", "--out", self.out]

    def started(self):
        return subprocess.Popen([*self.copy_of_the_check(), "first"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                text=True)

    def test_told_to_stop_it_keeps_what_it_has(self):
        self.add_tests("kernel_test", "kernels", {"A.Good": "passes", "A.Bad": "fails", "A.Slow": "hangs"})
        self.add("goldens", "ptx_goldens", "#!/bin/sh\nexit 1\n")
        process = self.started()
        for line in process.stdout:
            if "A.Bad" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
        self.assertEqual(process.returncode, 1)
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual([part["name"] for part in results["parts"]], ["device", "goldens", "tests"])
        steps = results["parts"][-1]["steps"]
        self.assertEqual((steps[0]["name"], steps[0]["status"]), ("kernels A.Bad", "failed"))
        self.assertEqual(steps[-1]["status"], "incomplete")

    def test_killed_it_leaves_what_it_had(self):
        self.add_tests("kernel_test", "kernels", {"A.Bad": "fails", "A.Slow": "hangs"})
        self.add("goldens", "ptx_goldens", "#!/bin/sh\nexit 1\n")
        process = self.started()
        for line in process.stdout:
            if "A.Bad" in line:
                break
        process.kill()
        process.communicate(timeout=10)
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual(results["parts"][-1]["steps"][0]["name"], "kernels A.Bad")
        self.assertIn("A.Bad", (self.out / "table.txt").read_text())

    def test_without_a_device_nothing_is_checked(self):
        self.programs.clear()
        self.add("about", "about_device", "#!/bin/sh\necho no driver\nexit 7\n")
        for word in ([], ["inspect"]):
            done = subprocess.run([*self.copy_of_the_check(), *word], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 7)
            self.assertIn("there is no CUDA device", done.stderr)

    def test_wrong_words_are_refused_and_help_names_the_runs(self):
        command = self.copy_of_the_check()
        self.assertEqual(subprocess.run([*command, "last"], capture_output=True, check=False).returncode, 2)
        text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False).stdout
        for word in runs.RUNS:
            self.assertIn(word, text)

    def test_a_file_as_folder_of_the_results_is_refused_and_stays(self):
        command = self.copy_of_the_check()[:-1]
        file = self.folder / "file"
        file.write_text("mine")
        for out in (file, file / "below"):
            done = subprocess.run([*command, out], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"--out: {out} cannot be a folder", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(file.read_text(), "mine")

    def test_parts_fit_into_their_runs(self):
        for word, limit in dict(first=180, measure=240, inspect=280).items():
            parts, seconds = runs.parts_of(word)
            self.assertEqual(seconds, limit)
            self.assertLessEqual(sum(share for _, _, share in parts), limit)
        parts, seconds = runs.parts_of(runs.ALL)
        self.assertEqual(len({name for name, _, _ in parts}), len(parts))
        self.assertLessEqual(sum(share for _, _, share in parts), seconds)


if __name__ == "__main__":
    unittest.main(buffer=True)
