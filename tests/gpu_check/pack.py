"""The folder of programs that a check runs."""
import json
import pathlib


class Pack:
    """Described by its pack.json."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.about = json.loads((self.folder / "pack.json").read_text())
        self.emulated = self.about["device"] == "emulated"
        self.timed = {}  # what benchmarks took, in microseconds, as far as they have been run
        self.torch = None  # the processes of PyTorch, once there are some

    def programs(self, role):
        return [self.folder / path for path in self.about["programs"].get(role, [])]

    def program(self, role):
        found = self.programs(role)
        if len(found) != 1:
            raise ValueError(f"the pack has {len(found)} programs with the role '{role}'")
        return found[0]
