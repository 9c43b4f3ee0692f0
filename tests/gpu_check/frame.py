"""The frame of a GPU check: parts with a time budget each, whose results are written as they come."""
import concurrent.futures
import json
import threading
import time

import command as commands
from command import Outcome, kill_group

PASSED, FAILED, SKIPPED, INCOMPLETE = "passed", "failed", "skipped", "incomplete"
LOGGED = 1 << 17  # characters of a command's output in the log


class Interrupted(Exception):
    """The check was told to stop."""


def status_of(statuses):
    """The status of a whole from those of its pieces: a skipped piece passes nothing."""
    for status in (FAILED, INCOMPLETE, PASSED):
        if status in statuses:
            return status
    return SKIPPED


class Part:
    """Limits within a part are in seconds of a check on a GPU, and stretch like its own."""

    def __init__(self, frame, name, seconds):
        self.frame, self.name, self.seconds = frame, name, seconds * frame.scale
        self.begin = time.monotonic()
        self.end = min(self.begin + self.seconds, frame.deadline)
        self.steps = []

    def left(self):
        return self.end - time.monotonic()

    def scaled(self, seconds):
        return seconds * self.frame.scale

    def record(self, name, status, detail="", **data):
        """Adds a result and writes the report."""
        with self.frame.lock:
            self.steps.append(dict(name=name, status=status, detail=detail, **data))
        self.frame.save()
        print(f"  {status:10s} {name}{': ' + detail if detail else ''}"[:400], flush=True)

    def run(self, command, seconds=None, environment=None, watch=None):
        """Runs a command for at most `seconds` and as long as the part has time; all that it started ends with it."""
        limit = self.left() if seconds is None else min(self.left(), self.scaled(seconds))
        if limit <= 0 or self.frame.stopping:
            return Outcome(None, "no time was left to start it", 0.0)
        environment = dict(self.frame.environment, **(environment or {}))
        outcome = commands.run(command, limit, environment, watch, self.frame.running)
        if self.frame.stopping:
            outcome.code = None
        self.frame.write_log(self.name, command, outcome)
        return outcome

    def each(self, function, items, workers):
        """Calls function(item) for all items, several at a time; for none any more when the check is told to stop."""
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(lambda item: None if self.frame.stopping else function(item), item) for item in items]:
                future.result()

    def summary(self):
        status = status_of([step["status"] for step in self.steps])
        return dict(name=self.name, status=status, seconds=round(time.monotonic() - self.begin, 1),
                    limit=round(self.seconds, 1), steps=self.steps)


class Frame:
    """Runs parts within `seconds` in all; results.json, table.txt and log.txt in `out` are kept up to date. `scale` is what
    the limits of parts are multiplied by; `environment` is for the commands that they run."""

    def __init__(self, out, seconds, about, table, scale=1.0, environment=None):
        self.out, self.about, self.table, self.scale, self.environment = out, about, table, scale, environment or {}
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
        part = self.current = Part(self, name, seconds)
        print(f"{name} (at most {max(0.0, part.left()):.0f} s)", flush=True)
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
        self.end()
        raise Interrupted

    def end(self):
        """Ends what is still running beside the parts."""
        for leader in list(self.running):
            kill_group(leader)

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
        text = outcome.output.rstrip()
        if len(text) > LOGGED:
            text = f"{text[:LOGGED // 2]}\n[…]\n{text[-LOGGED // 2:]}"
        with self.lock:
            self.log.write(f"== {part}: {' '.join(map(str, command))}\n{text}\n"
                           f"-- {outcome.how()} after {outcome.seconds:.1f} s\n\n")
            self.log.flush()
