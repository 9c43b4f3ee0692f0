"""Runs a program of GoogleTest and reads its lines as they come: a test that hangs, breaks the device or ends the program
is named and set aside, and the others go on in a new process."""
import re
import time

from command import Watch

NO_DEVICE = 7  # the exit code of heed's programs
ENVIRONMENT = dict(HEED_ALLOCATOR="plain", HEED_NUM_THREADS="1")
LINE = re.compile(r"\[( RUN      |       OK |  FAILED  |  SKIPPED |  DEVICE  )\] ([^\s,]+)")
COUNT = re.compile(r"\[=+\] Running (\d+) tests?\b")
# Errors after which all calls of the process fail.
STICKY = re.compile(r"illegal (memory access|address|instruction)|misaligned address|unspecified launch failure|"
                    r"device-side assert|invalid program counter|hardware stack error|launch timed out|"
                    r"invalid address space|uncorrectable", re.I)
PASSED, FAILED, SKIPPED, HANGS, FAULTS, ENDS = "passed", "failed", "skipped", "hangs", "breaks the device", "ends the program"
BAD = (FAILED, HANGS, FAULTS, ENDS)
NO_TIME = "its time ran out"  # before the test could be said to hang
PROCESSES = 8  # of one program at most
LINES = 40  # kept of what one test says


class Progress(Watch):
    """The tests of one process: how each ended, and which one runs. `ended(name, how, lines)` is told at once."""

    def __init__(self, seconds, ended):
        self.seconds, self.tell = seconds, ended
        self.results, self.on_device, self.count, self.cut = {}, set(), None, False  # cut: by its last test
        self.current, self.previous, self.since, self.sticky, self.said = None, None, 0.0, False, []

    def line(self, text):
        match = LINE.search(text)
        word, name = (match[1].strip(), match[2]) if match else (None, None)
        if word == "RUN":
            self.current, self.since, self.said = name, time.monotonic(), []
        elif self.current is None:
            count = COUNT.search(text)
            self.count = int(count[1]) if count else self.count
        elif word == "DEVICE":
            self.on_device.add(self.current)
        elif word and name == self.current:
            self.cut = word == "FAILED" and self.sticky
            self.end({"OK": PASSED, "SKIPPED": SKIPPED}.get(word, FAULTS if self.sticky else FAILED))
            return self.cut
        else:
            if len(self.said) < LINES and text.strip():
                self.said.append(text.rstrip()[:300])
            self.sticky = self.sticky or STICKY.search(text) is not None
        return False

    def end(self, how):
        self.results[self.current] = how
        if how in BAD:
            lines = self.said + ([f"before it ran {self.previous}"] if self.previous and how == FAULTS else [])
            self.tell(self.current, how, lines)
        self.previous, self.current, self.sticky = self.current, None, False

    def deadline(self):
        return self.since + self.seconds if self.current else None

    def finish(self, outcome):
        """The test that ran when the process ended had a part in it, unless the program's time ran out."""
        if self.current is None:
            return
        hangs = outcome.timed_out and time.monotonic() >= self.since + self.seconds
        if self.sticky or hangs or not outcome.timed_out:
            self.cut = True
            self.said += [] if outcome.timed_out else [outcome.how()]
            self.end(FAULTS if self.sticky else HANGS if hangs else ENDS)


class Program:
    """A test program and what became of its tests, over as many processes as it takes."""

    def __init__(self, path, every_test):
        self.path, self.every_test = path, every_test  # whether all tests count, or those with the mark of a device
        self.results, self.on_device, self.count, self.problem = {}, set(), None, None

    def rest(self):
        return ["--gtest_filter=-" + ":".join(self.results)] if self.results else []

    def run(self, part, seconds=20, test_seconds=10, reserve=0.0):
        """Processes of at most `seconds` until no test is left; `reserve` seconds of the part are left alone."""
        for _ in range(PROCESSES):
            left = part.left() - reserve
            if left <= 0 or part.frame.stopping:
                break
            progress = Progress(part.scaled(test_seconds), lambda *ended: self.tell(part, *ended))
            outcome = part.run([self.path, *self.rest()], min(seconds, left / part.frame.scale), ENVIRONMENT, progress)
            progress.finish(outcome)
            self.count = progress.count if self.count is None else self.count
            self.results.update(progress.results)
            self.on_device |= progress.on_device
            done = self.count is not None and not self.missing()
            if done or not progress.results or not (progress.cut or outcome.timed_out):
                self.problem = self.reason(outcome, progress)
                break

    def reason(self, outcome, progress):
        """What is wrong with a last process besides its tests; None if nothing is."""
        if progress.cut:
            return None
        if outcome.timed_out:
            return "does not end after its tests" if self.results and not self.missing() else None
        if not progress.results:
            if outcome.code == NO_DEVICE:
                return "no device"
            nothing_to_run = outcome.code == 0 and progress.count == 0
            return None if nothing_to_run else f"{outcome.how()} before its first test: {outcome.last_line()}"
        failed = any(how in BAD for how in progress.results.values())
        return f"{outcome.how()} after its tests" if outcome.code != 0 and not failed else None

    def tell(self, part, name, how, lines):
        what = f": {' | '.join(lines[:3])}" if lines else ""
        part.record(f"{self.path.name} {name}", "failed", how + what, output=lines)

    def missing(self):
        return max(0, (self.count or 0) - len(self.results))

    def bad(self):
        return [name for name, how in self.results.items() if how in BAD]

    def counts(self):
        passed = [name for name, how in self.results.items() if how == PASSED]
        on_device = len(passed) if self.every_test else len(self.on_device.intersection(passed))
        return dict(passed=on_device, host=len(passed) - on_device, failed=len(self.bad()), missing=self.missing(),
                    skipped=sum(how == SKIPPED for how in self.results.values()))

    def alone(self, part, name, seconds=10):
        """How a test ends by itself with launches that wait, and what it says."""
        ends = []
        progress = Progress(part.scaled(seconds), lambda *ended: ends.append(ended))
        environment = dict(ENVIRONMENT, CUDA_LAUNCH_BLOCKING="1")
        outcome = part.run([self.path, f"--gtest_filter={name}"], 2 * seconds, environment, progress)
        progress.finish(outcome)
        if ends:
            return ends[0][1], ends[0][2]
        if outcome.timed_out and name not in progress.results:
            return NO_TIME, []
        return progress.results.get(name, f"does not run ({outcome.how()})"), []
