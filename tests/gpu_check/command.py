"""Runs one command: reads what it writes line by line, and ends it with all that it started."""
import os
import select
import signal
import subprocess
import time

KEPT = 1 << 19  # bytes kept of the begin of a command's output, and as many of its end
UNKILLABLE = 5  # seconds that a killed process may take to go: one that hangs in the driver may never


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Outcome:
    """How a command ended: its exit code (None: it was ended), its output and how long it took."""

    def __init__(self, code, output, seconds):
        self.code, self.output, self.seconds = code, output, seconds

    @property
    def timed_out(self):
        return self.code is None

    def last_line(self):
        lines = [line for line in self.output.strip().splitlines() if line.strip()]
        return lines[-1].strip()[:500] if lines else "no output"

    def how(self):
        if self.code is None:
            return "its time ran out"
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Watch:
    """Sees a command's lines as they come."""

    def line(self, text):
        """True ends the command."""

    def deadline(self):
        """When to end the command, in time.monotonic(); None: never."""


class Output:
    """The begin and the end of what a command writes, and its lines for a watch."""

    def __init__(self, watch):
        self.watch, self.begin, self.rest, self.partial, self.lost = watch, b"", b"", b"", 0

    def add(self, piece):
        """Whether the watch wants the command ended."""
        room = KEPT - len(self.begin)
        self.begin += piece[:room]
        self.rest += piece[room:]
        if len(self.rest) > 2 * KEPT:
            self.lost += len(self.rest) - KEPT
            self.rest = self.rest[-KEPT:]
        if self.watch is None:
            return False
        *lines, self.partial = (self.partial + piece).split(b"\n")
        self.partial = self.partial[-KEPT:]
        return any(self.watch.line(line.decode(errors="replace")) for line in lines)

    def text(self):
        lost = f"\n[{self.lost} bytes are left out]\n".encode() if self.lost else b""
        return (self.begin + lost + self.rest).decode(errors="replace")


def follow(process, end, output):
    """Reads what a process writes until it ends, `end` is there or the watch says so; its exit code, else None."""
    watch, descriptor = output.watch, process.stdout.fileno()
    while True:
        until = min(end, (watch and watch.deadline()) or end)
        now = time.monotonic()
        if now >= until:
            return None
        ready, _, _ = select.select([descriptor], [], [], min(until - now, 0.2))
        piece = os.read(descriptor, 1 << 16) if ready else None
        if piece and output.add(piece):
            return None
        if not piece and (ready or process.poll() is not None):  # what it started may still hold its output open
            break
    try:
        return process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def run(command, seconds, environment, watch, running):
    """The Outcome of a command that gets `seconds`; `running` is the set of those that run, by process id."""
    begin = time.monotonic()
    output = Output(watch)
    try:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=dict(os.environ, **(environment or {})))
    except OSError as error:
        return Outcome(127, str(error), 0.0)
    running.add(process.pid)
    try:
        code = follow(process, begin + seconds, output)
    finally:
        running.discard(process.pid)
        kill_group(process.pid)
        process.stdout.close()
        try:
            process.wait(UNKILLABLE)
        except subprocess.TimeoutExpired:
            pass
    return Outcome(code, output.text(), time.monotonic() - begin)
