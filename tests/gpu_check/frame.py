"""The frame of a GPU check: parts with a time budget each, whose results are written as they come."""
import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

PASSED, FAILED, SKIPPED, INCOMPLETE = "passed", "failed", "skipped", "incomplete"
OUTPUT_KEPT = 1 << 20  # bytes of a command's output


class Interrupted(Exception):
    """The check was told to stop."""


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Outcome:
    """How a command ended: its exit code (None: its time ran out) and the end of its output."""

    def __init__(self, code, output, seconds):
        self.code, self.output, self.seconds = code, output, seconds

    @property
    def timed_out(self):
        return self.code is None

    def last_line(self):
        lines = [line for line in self.output.strip().splitlines() if line.strip()]
        return lines[-1].strip() if lines else "no output"


def status_of(statuses):
    """The status of a whole from those of its pieces: a skipped piece passes nothing."""
    for status in (FAILED, INCOMPLETE, PASSED):
        if status in statuses:
            return status
    return SKIPPED


class Part:
    def __init__(self, frame, name, seconds):
        self.frame, self.name, self.seconds = frame, name, seconds
        self.begin = time.monotonic()
        self.end = min(self.begin + seconds, frame.deadline)
        self.steps = []

    def left(self):
        return self.end - time.monotonic()

    def record(self, name, status, detail="", **data):
        """Adds a result and writes the report."""
        with self.frame.lock:
            self.steps.append(dict(name=name, status=status, detail=detail, **data))
        self.frame.save()
        print(f"  {status:10s} {name}{': ' + detail if detail else ''}", flush=True)

    def run(self, command, seconds=None, environment=None):
        """Runs a command for at most `seconds` and as long as the part has time; all that it started ends with it."""
        limit = min(self.left(), seconds or self.left())
        if limit <= 0 or self.frame.stopping:
            return Outcome(None, "no time was left to start it", 0.0)
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, start_new_session=True,
                                           env=dict(os.environ, **(environment or {})))
            except OSError as error:
                return Outcome(127, str(error), 0.0)
            self.frame.running.add(process.pid)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.frame.running.discard(process.pid)
                kill_group(process.pid)
                process.wait()
            if self.frame.stopping:
                code = None
            output.seek(max(0, output.tell() - OUTPUT_KEPT))
            text = output.read().decode(errors="replace")
        outcome = Outcome(code, text, time.monotonic() - begin)
        self.frame.write_log(self.name, command, outcome)
        return outcome

    def each(self, function, items, workers):
        """Calls function(item) for all items, several at a time."""
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(function, item) for item in items]:
                future.result()

    def summary(self):
        status = status_of([step["status"] for step in self.steps])
        return dict(name=self.name, status=status, seconds=round(time.monotonic() - self.begin, 1),
                    limit=round(self.seconds, 1), steps=self.steps)


class Frame:
    """Runs parts within `seconds` in all; results.json, table.txt and log.txt in `out` are kept up to date."""

    def __init__(self, out, seconds, about, table):
        self.out, self.about, self.table = out, about, table
        self.begin = time.monotonic()
        self.deadline = self.begin + seconds
        self.lock = threading.RLock()
        self.done, self.current = [], None
        self.running, self.stopping = set(), False
        out.mkdir(parents=True, exist_ok=True)
        self.log = open(out / "log.txt", "w", encoding="utf-8")
        self.save()

    def part(self, name, seconds, function):
        """Runs one part. An error in it is a failure of the part, and the next one follows."""
        print(f"{name} (at most {max(0.0, min(seconds, self.deadline - time.monotonic())):.0f} s)", flush=True)
        part = self.current = Part(self, name, seconds)
        try:
            if part.left() <= 0:
                part.record("start", INCOMPLETE, "no time was left")
            else:
                function(part)
        except Interrupted:
            part.record("stopped", INCOMPLETE, "the check was told to stop")
            raise
        except Exception as error:  # one part must not take the others with it
            part.record("error", FAILED, f"{type(error).__name__}: {error}")
        finally:
            with self.lock:
                self.done.append(part.summary())
                self.current = None
            self.save()
        return self.done[-1]["status"]

    def stop(self, *_):
        """Ends what runs and raises Interrupted: a handler of signals."""
        self.stopping = True
        for leader in list(self.running):
            kill_group(leader)
        raise Interrupted

    def results(self):
        parts = self.done + ([self.current.summary()] if self.current else [])
        return dict(status=status_of([part["status"] for part in parts]), about=self.about,
                    seconds=round(time.monotonic() - self.begin, 1), parts=parts)

    def save(self):
        with self.lock:
            results = self.results()
            for name, text in (("results.json", json.dumps(results, indent=1)), ("table.txt", self.table(results))):
                fresh = self.out / (name + ".part")
                fresh.write_text(text + "\n", encoding="utf-8")
                fresh.replace(self.out / name)

    def write_log(self, part, command, outcome):
        ended = "its time ran out" if outcome.timed_out else f"exit code {outcome.code}"
        with self.lock:
            self.log.write(f"== {part}: {' '.join(map(str, command))}\n{outcome.output.rstrip()}\n"
                           f"-- {ended} after {outcome.seconds:.1f} s\n\n")
            self.log.flush()
