#!/usr/bin/env python3
"""compute-sanitizer and Nsight Compute that pretend: what they miss, find, know and cannot do."""
import json
import unittest
import unittest.mock
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


# An ncu whose reports hold the number of kernels. It hangs at a word with `hangs` in it; a page ends with `end`.
PROFILER = '''#!/usr/bin/env python3
import sys, time
if any({hangs!r} in word for word in sys.argv): time.sleep(60)
def after(option): return sys.argv[sys.argv.index(option) + 1]
if "--import" in sys.argv:
    print("==PROF== a stray line")
    print('"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
    for kernel in range(int(open(after("--import")).read())):
        print(f'"{{kernel}}","7","void heed::<unnamed>::row_kernel<float>(int)","Duration","us","15.20"')
        print(f'"{{kernel}}","7","void heed::<unnamed>::row_kernel<float>(int)","Registers Per Thread","register/thread","56"')
    print({end!r})
    sys.exit()
print({says!r})
if {works!r}: open(after("--export") + ".ncu-rep", "w").write({kernels!r} or after("--launch-count"))
sys.exit({code})
'''
FEW = profiler.PROFILES[:4]  # the last of which has two kernels
HANGS = FEW[1].benchmark


class Profiler(Pretended):
    def profile(self, scale=1.0, **does):
        """The steps of a few profiles."""
        for name in {profile.program for profile in FEW}:
            self.add("bench", name, "#!/bin/sh\n")
        usual = dict(says="", works=True, code=0, hangs="nothing", end="", kernels="")
        self.add("profiler", "ncu", PROFILER.format(**dict(usual, **does)))
        ncu = str(self.folder / "bin" / "ncu")
        with unittest.mock.patch.multiple(profiler, PROFILES=FEW, find_profiler=lambda: ncu):
            return self.part(profiler.profile, scale=scale)["steps"]

    def test_figures_and_reports_are_kept(self):
        steps = self.profile(code=9)  # as a program has that was ended after its kernel
        self.assertEqual({step["status"] for step in steps}, {"passed"})
        self.assertEqual(len(steps), 5)
        self.assertEqual(steps[0]["name"], f"{FEW[0].benchmark}: row_kernel")
        self.assertEqual(steps[0]["detail"], "Duration 15.20 us, Registers Per Thread 56 register/thread")
        with zipfile.ZipFile(self.out / "profiles.zip") as file:
            self.assertEqual(len(file.namelist()), len(FEW))

    def test_kernels_are_named_however_their_namespace_is_spelt(self):
        for kernel in ("void a::<unnamed>::row_kernel<a::<unnamed>::Op>(int)", "a::(anonymous namespace)::row_kernel(int)",
                       "void row_kernel<1>(a::T)", "row_kernel"):
            self.assertEqual(profiler.short_name(kernel), "row_kernel")
        self.assertEqual(profiler.short_name("void other(int)"), "void other(int)")

    def test_one_that_hangs_is_incomplete_and_the_next_is_tried(self):
        steps = {step["name"]: step for step in self.profile(hangs=f"^{HANGS}/", scale=0.05)}
        self.assertEqual((steps[HANGS]["status"], steps[HANGS]["detail"]),
                         ("incomplete", "no report (its time ran out): no output"))
        self.assertEqual({step["status"] for name, step in steps.items() if name != HANGS}, {"passed"})

    def test_a_report_whose_reading_hangs_is_incomplete_and_kept(self):
        steps = self.profile(hangs="--import", scale=0.02)
        self.assertEqual({step["status"] for step in steps}, {"incomplete"})
        self.assertTrue((self.out / "profiles.zip").exists())

    def test_a_report_that_cannot_be_read_is_a_failure_and_kept(self):
        steps = self.profile(kernels="rubbish")
        self.assertEqual([step["status"] for step in steps], ["failed"] * len(FEW))
        self.assertIn("its report tells of 0 of 1 kernels (exit code 1): ValueError", steps[0]["detail"])
        with zipfile.ZipFile(self.out / "profiles.zip") as file:
            self.assertEqual(len(file.namelist()), len(FEW))

    def test_what_a_report_holds_counts_and_what_it_lacks_is_a_failure(self):
        for does, failed in (dict(kernels="1"), 1), (dict(end='"9","' + "x" * 200000), 0):
            self.programs.clear()
            statuses = [step["status"] for step in self.profile(**does)]
            self.assertEqual(statuses.count("failed"), failed)
            self.assertGreaterEqual(statuses.count("passed"), len(FEW))

    def test_no_kernel_is_a_failure_and_the_next_is_tried(self):
        steps = self.profile(says="==WARNING== No kernels were profiled.", works=False)
        self.assertEqual([step["status"] for step in steps], ["failed"] * len(FEW))

    def test_without_permission_it_is_skipped(self):
        steps = self.profile(says="==ERROR== ERR_NVGPUCTRPERM - no permission", works=False, code=1)
        self.assertEqual([step["status"] for step in steps], ["skipped"])
        self.assertIn("ERR_NVGPUCTRPERM", json.dumps(steps))

    def test_it_is_skipped_where_it_is_not_or_the_device_is_emulated(self):
        self.assertEqual(self.part(profiler.profile, device="emulated")["status"], "skipped")


if __name__ == "__main__":
    unittest.main(buffer=True)
