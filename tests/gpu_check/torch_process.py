"""torch_peer.py as a process that answers questions."""
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time

from command import kill_group

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "torch_peer.py"
ENDED = dict(error="PyTorch ended unexpectedly", ended=True)


def python_with_torch():
    """A Python that can import torch, or None."""
    for program in dict.fromkeys([shutil.which("python3"), shutil.which("python"), sys.executable]):
        if program is None:
            continue
        code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
        if subprocess.run([program, "-c", code], check=False).returncode == 0:
            return program
    return None


def question(row, variant, **more):
    return dict(name=f"{row.benchmark} {variant}", work=row.work, variant=variant, **row.arguments, **more)


class Peer:
    """Answers are objects in JSON, a line each, with the name of their question; other lines are none. `running` is the set
    of process groups that end with the check."""

    def __init__(self, python, cache, log, running, device="cuda", script=SCRIPT):
        self.buffer, self.running, self.answers = b"", running, {}
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(cache), PYTHONUNBUFFERED="1")
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([python, str(script), device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, env=environment, start_new_session=True)
        running.add(self.process.pid)
        self.about = None

    def close(self):
        self.running.discard(self.process.pid)
        kill_group(self.process.pid)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass

    def start(self, seconds):
        """What PyTorch it is, or an error."""
        self.about = self.wait("about", seconds)
        return self.about

    def ask(self, asked):
        """Sends a question, whose answer wait() gives."""
        try:
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # wait() will notice

    def wait(self, name, seconds):
        """The answer to the question of that name, or what else there is to say within `seconds`."""
        end = time.monotonic() + seconds
        while name not in self.answers:
            left = end - time.monotonic()
            if left <= 0:
                return dict(error="its time ran out", timed_out=True)
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            if not ready:
                continue
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                about = self.answers.get("about", {})
                return dict(about, ended=True) if "error" in about else ENDED
            *lines, self.buffer = (self.buffer + piece).split(b"\n")
            for line in lines:
                self.take(line)
        return self.answers[name]

    def take(self, line):
        try:
            answer = json.loads(line)
        except ValueError:
            return
        if isinstance(answer, dict) and "name" in answer:
            self.answers[answer["name"]] = answer
