#!/usr/bin/env python3
"""compute-sanitizer and Nsight Compute that pretend: what they miss, find, know and cannot do."""
import json
import unittest
import zipfile

import profiler
import sanitizer
from pretended import HERE, Pretended

RACE_HEAD = "Error: Race reported between Write access at f(int)+0x10 and Read access at named_barriers(int)+0x20"
RACE = f"========= {RACE_HEAD}\n=========     [8 hazards]"
INVALID = "========= Invalid __global__ read of size 4 bytes\n=========     at row_kernel(int)+0x10\n========="


def sanitizer_script(finds, noise=None, output=""):
    """A compute-sanitizer that finds the canaries of `finds` and says `noise` of the tests in a group."""
    group, text = noise or ("-", "")
    return f'''#!/bin/sh
tool=$2; shift 4
[ "$1" = --report-api-errors ] && shift 2
case "$(basename $1) $2" in
  "canary $tool") case " {' '.join(finds)} " in *" $tool "*) echo "ERROR SUMMARY: 1 error"; exit 99;; esac;;
esac
{output}
case "$2" in --gtest_filter={group}.*) cat <<'TEXT'
{text}
TEXT
  exit 99;; esac
"$@"
code=$?
echo "========= ERROR SUMMARY: 0 errors"
exit $code
'''


class Sanitizer(Pretended):
    def sanitize(self, text, tests=None, canary="", **options):
        """(status, detail) by the name of a step."""
        self.add("canary", "canary", f"#!/bin/sh\n{canary}\n")
        self.add_tests("kernel_test", "kernels", tests or {"Rows.One": "passes", "Rows.Two": "passes", "Heads.One": "passes"})
        self.add("sanitizer", "compute-sanitizer", text)
        found, sanitizer.find_sanitizer = sanitizer.find_sanitizer, lambda: str(self.folder / "bin" / "compute-sanitizer")
        try:
            return {step["name"]: (step["status"], step["detail"]) for step in self.part(sanitizer.sanitize, **options)["steps"]}
        finally:
            sanitizer.find_sanitizer = found

    def test_all_tools_that_find_their_canary_are_believed(self):
        steps = self.sanitize(sanitizer_script(sanitizer.TOOLS))
        self.assertEqual({status for status, _ in steps.values()}, {"passed"})
        self.assertEqual(len(steps), 12)  # canaries, and two groups

    def test_a_tool_that_misses_its_canary_is_a_failure_and_says_nothing_of_kernels(self):
        steps = self.sanitize(sanitizer_script(["memcheck", "initcheck", "synccheck"]))
        self.assertEqual(steps["racecheck: canary"][0], "failed")
        self.assertNotIn("racecheck: Rows", steps)
        self.assertEqual(steps["memcheck: Rows"][0], "passed")

    def test_a_canary_that_hangs_is_incomplete_and_the_other_tools_go_on(self):
        others = [tool for tool in sanitizer.TOOLS if tool != "racecheck"]
        steps = self.sanitize(sanitizer_script(others), canary="case $1 in racecheck) sleep 60;; esac", scale=0.04)
        self.assertEqual(steps["racecheck: canary"], ("incomplete", "not found: its time ran out"))
        self.assertNotIn("racecheck: Rows", steps)
        self.assertEqual({steps[f"{tool}: {name}"][0] for tool in others for name in ("canary", "Rows", "Heads")}, {"passed"})

    def test_a_tool_is_not_believed_that_does_not_pass_a_correct_kernel(self):
        for does, end in (("sleep 60", ("incomplete", "its time ran out")), ("exit 99", ("failed", "exit code 99"))):
            self.programs.clear()
            steps = self.sanitize(sanitizer_script(sanitizer.TOOLS), canary=f"case $1 in none) {does};; esac", scale=0.04)
            self.assertEqual(steps, {f"{tool}: canary": (end[0], f"found, but a correct kernel does not pass: {end[1]}")
                                     for tool in sanitizer.TOOLS})

    def test_a_finding_fails_its_group(self):
        steps = self.sanitize(sanitizer_script(sanitizer.TOOLS, ("Rows", INVALID)))
        self.assertEqual({steps[f"{tool}: Rows"][0] for tool in sanitizer.TOOLS}, {"failed"})
        self.assertEqual({steps[f"{tool}: Heads"][0] for tool in sanitizer.TOOLS}, {"passed"})
        self.assertIn("Invalid __global__ read of size 4 bytes | at row_kernel(int)", steps["memcheck: Rows"][1])

    def test_known_reports_are_counted_apart(self):
        (self.folder / "known_reports.txt").write_text("# a comment\nracecheck\tnamed_barriers\tthe tool does not know them\n")
        text = sanitizer_script(sanitizer.TOOLS, ("Rows", RACE + "\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error)"))
        steps = self.sanitize(text)
        self.assertEqual(steps["racecheck: Rows"], ("passed", "nothing found (1 known reports)"))
        self.assertEqual(steps["memcheck: Rows"][0], "failed")  # known of one tool only

    def test_a_group_that_hangs_is_incomplete_with_the_test_that_ran(self):
        tests = {"Rows.One": "passes", "Rows.Slow": "hangs", "Heads.One": "passes"}
        steps = self.sanitize(sanitizer_script(sanitizer.TOOLS), tests, scale=0.02)
        self.assertEqual(steps["memcheck: Rows"][0], "incomplete")
        self.assertIn("in Rows.Slow", steps["memcheck: Rows"][1])
        self.assertEqual(steps["memcheck: Heads"][0], "passed")

    def test_reports_are_read_among_other_lines(self):
        text = f"rubbish\n{INVALID}\nRUN\n{RACE}\n=========\n========= Warning: something else\n"
        found = sanitizer.reports(text)
        self.assertEqual(found, ["Invalid __global__ read of size 4 bytes\nat row_kernel(int)+0x10",
                                 RACE_HEAD + "\n[8 hazards]"])
        self.assertEqual(sanitizer.reports("========= COMPUTE-SANITIZER\nInvalid\n"), [])

    def test_a_tool_that_does_not_know_the_device_is_skipped(self):
        steps = self.sanitize("#!/bin/sh\necho 'Error: Device not supported'\nexit 1\n")
        self.assertEqual({status for status, _ in steps.values()}, {"skipped"})

    def test_an_emulated_device_is_skipped(self):
        self.assertEqual(self.part(sanitizer.sanitize, device="emulated")["status"], "skipped")

    def test_the_list_of_known_reports_can_be_read(self):
        known = sanitizer.read_known((HERE / "known_reports.txt").read_text())
        self.assertTrue(all(tool in sanitizer.TOOLS for tool, _, _ in known))


PROFILER = '''#!/usr/bin/env python3
import sys
if "--import" in sys.argv:
    print("==PROF== a stray line")
    print('"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
    print('"0","7","heed::forward_kernel<float>(int)","Duration","us","15.20"')
    print('"0","7","heed::forward_kernel<float>(int)","Registers Per Thread","register/thread","56"')
    sys.exit()
print({says!r})
if {works!r}: open(sys.argv[sys.argv.index("--export") + 1] + ".ncu-rep", "wb").write(b"report")
sys.exit({code})
'''


class Profiler(Pretended):
    def profile(self, says="", works=True, code=0):
        for name in {profile.program for profile in profiler.PROFILES}:
            self.add("bench", name, "#!/bin/sh\n")
        self.add("profiler", "ncu", PROFILER.format(says=says, works=works, code=code))
        found, profiler.find_profiler = profiler.find_profiler, lambda: str(self.folder / "bin" / "ncu")
        try:
            return self.part(profiler.profile)["steps"]
        finally:
            profiler.find_profiler = found

    def test_figures_and_reports_are_kept(self):
        steps = self.profile(code=9)  # as a program has that was ended after its kernel
        self.assertEqual({step["status"] for step in steps}, {"passed"})
        self.assertEqual(len(steps), len(profiler.PROFILES))
        self.assertEqual(steps[0]["name"], f"{profiler.PROFILES[0].benchmark}: forward_kernel")
        self.assertEqual(steps[0]["detail"], "Duration 15.20 us, Registers Per Thread 56 register/thread")
        with zipfile.ZipFile(self.out / "profiles.zip") as file:
            self.assertEqual(len(file.namelist()), len(profiler.PROFILES))

    def test_no_kernel_is_a_failure_and_the_next_is_tried(self):
        steps = self.profile("==WARNING== No kernels were profiled.", works=False)
        self.assertEqual([step["status"] for step in steps], ["failed"] * len(profiler.PROFILES))

    def test_without_permission_it_is_skipped(self):
        steps = self.profile("==ERROR== ERR_NVGPUCTRPERM - no permission", works=False, code=1)
        self.assertEqual([step["status"] for step in steps], ["skipped"])
        self.assertIn("ERR_NVGPUCTRPERM", json.dumps(steps))

    def test_it_is_skipped_where_it_is_not_or_the_device_is_emulated(self):
        self.assertEqual(self.part(profiler.profile, device="emulated")["status"], "skipped")


if __name__ == "__main__":
    unittest.main(buffer=True)
