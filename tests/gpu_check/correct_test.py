#!/usr/bin/env python3
"""The check's tests and golden results: programs that fail, hang, break the device, end in the middle and talk rubbish."""
import unittest

import correct
import gtest
from pretended import Pretended

GOLDENS = '''#!/usr/bin/env python3
import sys
mine = {mine!r}.splitlines()
theirs = open(sys.argv[2]).read().splitlines()
wrong = [line for line in mine if line not in theirs]
print(f"{{len(mine)}} cases, {{len(wrong)}} differ")
print("a stray line", file=sys.stderr)
sys.exit(bool(wrong))
'''


class Tests(Pretended):
    def run_tests(self, tests, role="kernel_test", code=0, scale=0.2, seconds=20, name="kernels"):
        """The steps: hangs take a fifth of the 10 s that a GPU's may."""
        self.add_tests(role, name, tests, code)
        part = self.part(correct.tests, seconds=seconds, scale=scale)
        return {step["name"]: (step["status"], step["detail"]) for step in part["steps"]}

    def test_a_planted_failure_is_named_and_run_again_alone(self):
        steps = self.run_tests({"A.Good": "passes", "A.Bad": "fails"}, scale=1)
        self.assertEqual(steps["kernels"], ("failed", "1 passed on the device, 1 failed"))
        self.assertEqual(steps["kernels A.Bad"], ("failed", "failed: file.cpp:3: Failure | Expected 1, got 2"))
        self.assertEqual(steps["kernels A.Bad alone, with blocking launches"][0], "failed")
        self.assertEqual(self.processes("kernels"), [["A.Good", "A.Bad"], ["A.Bad", "blocking"]])

    def test_a_broken_device_is_one_tests_fault_and_the_others_go_on(self):
        steps = self.run_tests({"A.One": "passes", "A.Breaks": "breaks", "A.Two": "passes", "A.Three": "fails"}, scale=1)
        self.assertEqual(steps["kernels"], ("failed", "2 passed on the device, 2 failed"))
        self.assertIn("breaks the device", steps["kernels A.Breaks"][1])
        self.assertIn("illegal memory access", steps["kernels A.Breaks"][1])
        self.assertIn("Expected 1", steps["kernels A.Three"][1])
        self.assertNotIn("kernels A.Two", steps)
        self.assertEqual(self.processes("kernels")[:2], [["A.One", "A.Breaks", "A.Two", "A.Three"], ["A.Two", "A.Three"]])
        self.assertIn("breaks the device", steps["kernels A.Breaks alone, with blocking launches"][1])

    def test_what_breaks_only_after_others_says_after_which(self):
        part_steps = self.run_tests({"A.One": "passes", "A.Two": "breaks in company"}, scale=1)
        self.assertIn("before it ran A.One", part_steps["kernels A.Two"][1])
        self.assertEqual(part_steps["kernels A.Two alone, with blocking launches"], ("passed", "passed"))
        self.assertEqual(part_steps["kernels"][0], "failed")

    def test_a_hanging_test_is_named_and_the_others_go_on(self):
        steps = self.run_tests({"A.One": "passes", "A.Hangs": "hangs", "A.Two": "passes"})
        self.assertEqual(steps["kernels A.Hangs"], ("failed", "hangs"))
        self.assertEqual(steps["kernels"], ("failed", "2 passed on the device, 1 failed"))
        self.assertEqual(steps["kernels A.Hangs alone, with blocking launches"], ("failed", "hangs"))

    def test_a_test_that_ends_its_program_is_named_and_the_others_go_on(self):
        tests = {"A.One": "passes", "A.Dies": "dies", "A.Two": "passes", "A.Exits": "exits", "A.Three": "passes"}
        steps = self.run_tests(tests, scale=1)
        self.assertEqual(steps["kernels A.Dies"], ("failed", "ends the program: SIGSEGV"))
        self.assertEqual(steps["kernels A.Exits"], ("failed", "ends the program: exit code 3"))
        self.assertEqual(steps["kernels"], ("failed", "3 passed on the device, 2 failed"))

    def test_rubbish_among_the_lines_ends_nothing(self):
        steps = self.run_tests({"A.Rubbish": "rubbish", "A.Two": "passes", "A.Says": "says", "A.Three": "passes"}, scale=1)
        self.assertEqual(steps, {"kernels": ("passed", "4 passed on the device")})
        self.assertEqual(len(self.processes("kernels")), 1)

    def test_a_program_that_always_breaks_is_left_after_a_while(self):
        steps = self.run_tests({f"A.T{i}": "dies" for i in range(20)}, scale=1)
        self.assertEqual(steps["kernels"], ("failed", f"{gtest.PROCESSES} failed, {20 - gtest.PROCESSES} not run"))

    def test_a_program_out_of_time_goes_on_in_another_process(self):
        steps = self.run_tests({f"A.T{i}": "sleeps" for i in range(5)}, scale=0.1)
        self.assertEqual(steps, {"kernels": ("passed", "5 passed on the device")})
        self.assertGreater(len(self.processes("kernels")), 1)

    def test_of_many_that_fail_only_some_run_again_and_it_says_so(self):
        steps = self.run_tests({f"A.T{i}": "fails" for i in range(correct.RERUNS + 2)}, scale=1)
        self.assertEqual(steps["kernels"], ("failed", f"{correct.RERUNS + 2} failed"))
        self.assertEqual(sum("alone," in name for name in steps), correct.RERUNS)
        self.assertEqual(steps["alone"], ("incomplete", "2 more failed tests were not run again"))
        self.assertEqual(len(self.processes("kernels")), 1 + correct.RERUNS)

    def test_what_there_is_no_time_to_run_again_is_incomplete(self):
        self.add_tests("test", "kernels", {"A.Hangs": "hangs"})

        def run_again(pack, part):
            correct.run_alone(part, gtest.Program(pack.program("test"), every_test=True), "A.Hangs")
        step = self.part(run_again, seconds=0.5)["steps"][0]
        self.assertEqual((step["status"], step["detail"]), ("incomplete", "its time ran out"))

    def test_only_tests_that_reached_the_device_count(self):
        self.add_tests("test", "host", {"A.Host": "host"})
        self.add_tests("test", "both", {"A.Host": "host", "A.Device": "passes"})
        self.add_tests("test", "skipping", {"A.Skipped": "skips"})
        self.assertEqual(self.steps(correct.tests), dict(host="skipped", both="passed", skipping="skipped"))

    def test_programs_that_run_no_test_pass_nothing(self):
        self.add("test", "crash", "#!/bin/sh\nkill -SEGV $$\n")
        self.add("test", "nodevice", "#!/bin/sh\nexit 7\n")
        self.add("test", "talks", "#!/bin/sh\necho rubbish\n")
        self.add("test", "silent", "#!/bin/sh\nsleep 60\n")
        self.assertEqual(self.steps(correct.tests, seconds=3, scale=0.03),
                         dict(crash="failed", nodevice="skipped", talks="failed", silent="incomplete"))

    def test_a_failure_after_the_tests_counts(self):
        self.assertEqual(self.run_tests({"A.One": "passes"}, code=5, scale=1)["kernels"][0], "failed")

    def test_a_program_that_does_not_end_is_a_failure(self):
        self.assertEqual(self.run_tests({"A.One": "passes"}, code="stays", scale=0.1)["kernels"],
                         ("failed", "1 passed on the device, does not end after its tests"))

    def test_no_tests_at_all_are_a_failure(self):
        self.assertEqual(self.steps(correct.tests), dict(tests="failed"))

    def test_tests_with_parameters_have_their_names(self):
        progress = gtest.Progress(10, lambda *_: None)
        for line in ("[ RUN      ] All/A.One/0", "text[       OK ] All/A.One/0 (0 ms)",
                     "[ RUN      ] A.Two", "[  FAILED  ] A.Two, where GetParam() = 3 (1 ms)"):
            progress.line(line)
        self.assertEqual(progress.results, {"All/A.One/0": "passed", "A.Two": "failed"})


class Goldens(Pretended):
    def test_right_and_wrong_results(self):
        self.add("goldens", "ptx_goldens", GOLDENS.format(mine=self.goldens))
        self.assertEqual(self.part(correct.goldens)["status"], "passed")
        self.programs.pop("goldens")
        self.add("goldens", "ptx_goldens", GOLDENS.format(mine=self.goldens.replace("7", "6")))
        self.assertEqual(self.part(correct.goldens)["steps"][0]["status"], "failed")

    def test_cases_that_the_device_cannot_run_are_left_out(self):
        self.add("goldens", "ptx_goldens", GOLDENS.format(mine="b 7\n").replace(
            "print(", 'print("1 cases need compute capability 9.0: not compared")\nprint(', 1))
        part = self.part(correct.goldens)
        self.assertEqual(part["status"], "passed")
        self.assertEqual(part["steps"][0]["differences"], ["1 cases, 0 differ"])
        self.assertIn("not compared", part["steps"][0]["detail"])

    def test_a_comparison_that_never_complains_is_a_failure(self):
        self.add("goldens", "ptx_goldens", "#!/bin/sh\necho '2 cases, 0 differ'\n")
        self.assertEqual(self.steps(correct.goldens), {"instructions": "passed", "planted wrong results": "failed"})

    def test_one_that_hangs_is_incomplete(self):
        self.add("goldens", "ptx_goldens", "#!/bin/sh\nsleep 60\n")
        self.assertEqual(self.steps(correct.goldens, seconds=0.3), {"instructions": "incomplete"})


class Device(Pretended):
    def test_it_is_recorded_whatever_else_is_said(self):
        steps = self.part(correct.device, device="emulated")["steps"]
        self.assertEqual((steps[0]["status"], steps[0]["about"]["name"]), ("passed", "pretended"))

    def test_a_machine_without_one_is_skipped(self):
        self.programs.clear()
        self.add("about", "about_device", "#!/bin/sh\nexit 7\n")
        self.assertEqual(self.part(correct.device)["status"], "skipped")

    def test_a_description_that_cannot_be_read_is_a_failure(self):
        self.programs.clear()
        self.add("about", "about_device", "#!/bin/sh\necho '{broken'\n")
        self.assertEqual(self.part(correct.device)["status"], "failed")


if __name__ == "__main__":
    unittest.main(buffer=True)
