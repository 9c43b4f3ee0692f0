"""compute-sanitizer on the kernel tests, by groups, after it found the mistakes that were planted for it."""
import os
import re
import shutil

import gtest
from frame import FAILED, INCOMPLETE, PASSED, SKIPPED

FOUND = 99
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CANARY = 25  # seconds for one
GROUP = 60
WORKERS = 4
HEAD = re.compile(r"^=========\s+(Invalid|Uninitialized|Barrier error|(?:Error|Warning): (?:Race|Potential)|Race reported|"
                  r"Program hit|Leaked)")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
UNABLE = re.compile(r"not supported|unsupported|failed to initiali[sz]e|LibraryNotLoaded|insufficient permission", re.I)


def find_tool(name, *places):
    """A program of CUDA's: in the toolkit, else on PATH."""
    for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        for place in places:
            if folder and os.access(os.path.join(folder, place, name), os.X_OK):
                return os.path.join(folder, place, name)
    return shutil.which(name)


def find_sanitizer():
    return find_tool("compute-sanitizer", "bin", "compute-sanitizer")


def reports(output):
    """The reports in a sanitizer's output, each as its lines without what marks them."""
    found, current = [], None
    for line in output.splitlines():
        if not line.startswith("========="):
            continue
        text = line[9:].strip()
        if HEAD.match(line):
            current = [text]
            found.append(current)
        elif not text:
            current = None
        elif current is not None:
            current.append(text)
    return ["\n".join(lines) for lines in found]


def read_known(text):
    """[(tool, pattern, reason)] of known_reports.txt."""
    known = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            tool, pattern, reason = line.split("\t")
            known.append((tool, re.compile(pattern, re.S), reason))
    return known


class Findings:
    """What a sanitizer found: reports, of which some are known, and by its summary perhaps more than it showed."""

    def __init__(self, tool, outcome, known):
        every = reports(outcome.output)
        self.new = [text for text in every
                    if not any(name == tool and pattern.search(text) for name, pattern, _ in known)]
        self.known = len(every) - len(self.new)
        # Reports beyond those shown are of no known kind, and neither is a complaint without a report.
        more = sum(map(int, SUMMARY.findall(outcome.output))) - len(every)
        self.count = len(self.new) + (max(0, more) if not every or self.new else 0)
        if not self.count and not every and outcome.code == FOUND:
            self.count = 1

    def detail(self):
        known = f" ({self.known} known reports)" if self.known else ""
        if not self.count:
            return f"nothing found{known}"
        return f"{self.count} findings{known}: {' | '.join(self.new[0].splitlines()[:2]) if self.new else 'see the log'}"


def command(sanitizer, tool, program, *arguments):
    # Calls that tests make to be refused are no finding.
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [sanitizer, "--tool", tool, "--error-exitcode", FOUND, *options, program, *arguments]


def environment(tool):
    # Memory filled beforehand would hide from initcheck what was never written.
    return dict(HEED_NUM_THREADS="1") if tool == "initcheck" else gtest.ENVIRONMENT


def try_canary(part, sanitizer, tool, canary, believed):
    """Adds the tool to `believed` if it finds the planted mistake and nothing in the correct kernel."""
    name = f"{tool}: canary"
    outcome = part.run(command(sanitizer, tool, canary, tool), CANARY, environment(tool))
    if not Findings(tool, outcome, []).count:
        if UNABLE.search(outcome.output):
            return part.record(name, SKIPPED, f"the tool does not work here: {outcome.last_line()}")
        return part.record(name, INCOMPLETE if outcome.timed_out else FAILED, f"not found: {outcome.how()}")
    clean = part.run(command(sanitizer, tool, canary, "none"), CANARY, environment(tool))
    if clean.code != 0 or Findings(tool, clean, []).count:
        return part.record(name, INCOMPLETE if clean.timed_out else FAILED,
                           f"found, but a correct kernel does not pass: {clean.how()}")
    believed.add(tool)
    return part.record(name, PASSED, "found")


def groups_of(part, program):
    """The suites of a test program, each a group."""
    listed = part.run([program, "--gtest_list_tests"], 20)
    return re.findall(r"^([\w/]+)\.(?:\s|$)", listed.output, re.M)


def check_group(part, sanitizer, tool, program, group, known):
    progress = gtest.Progress(part.scaled(GROUP), lambda *_: None)
    outcome = part.run(command(sanitizer, tool, program, f"--gtest_filter={group}.*"), GROUP, environment(tool), progress)
    found = Findings(tool, outcome, known)
    detail = found.detail()
    running = f" in {progress.current}" if progress.current else ""
    if found.count:
        status = FAILED
    elif outcome.timed_out:
        status, detail = INCOMPLETE, f"its time ran out{running} after {len(progress.results)} tests; {detail}"
    elif outcome.code not in (0, FOUND):
        status, detail = FAILED, f"{outcome.how()}{running}: {outcome.last_line()}"
    else:
        status = PASSED
    part.record(f"{tool}: {group}", status, detail, seconds=round(outcome.seconds, 1), reports=found.new[:3])


def sanitize(pack, part):
    if pack.emulated:
        return part.record("compute-sanitizer", SKIPPED, "the device is emulated")
    sanitizer = find_sanitizer()
    if sanitizer is None:
        return part.record("compute-sanitizer", SKIPPED, "it is not installed")
    known = read_known((pack.folder / pack.about["known_reports"]).read_text())
    believed = set()
    part.each(lambda tool: try_canary(part, sanitizer, tool, pack.program("canary"), believed), TOOLS, WORKERS)
    groups = [(program, group) for program in pack.programs("kernel_test") for group in groups_of(part, program)]
    work = [(tool, *group) for tool in TOOLS if tool in believed for group in groups]
    part.each(lambda item: check_group(part, sanitizer, *item, known), work, WORKERS)
    return None
