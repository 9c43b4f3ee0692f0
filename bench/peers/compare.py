#!/usr/bin/env python3
"""Times a training step of heed and of PyTorch in turn, so that a change in the machine's load meets both alike.

usage: compare.py STEP_PROGRAM [--rounds N] [--steps N] [--python PATH] [--out F.json] [--force] [-- OPTIONS OF BOTH]

Prints the median and spread of each and the ratio of every round; refuses on a busy machine.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Peer:
    """A program that runs as many steps as it is told and answers with their milliseconds."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        if not first:
            sys.exit(f"compare: {command[0]} ended at once")
        self.about = json.loads(first)
        self.times = []

    def run(self, steps):
        self.process.stdin.write(f"run {steps}\n")
        self.process.stdin.flush()
        times = json.loads(self.process.stdout.readline())["milliseconds"]
        self.times += times
        return statistics.median(times)

    def summary(self):
        return dict(name=self.about["name"], parameters=self.about["parameters"], median=statistics.median(self.times),
                    least=min(self.times), most=max(self.times), steps=len(self.times))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out")
    parser.add_argument("--force", action="store_true", help="time even on a busy machine")
    arguments, both = parser.parse_known_args()
    both = [word for word in both if word != "--"]
    load = os.getloadavg()[0]
    if load > 0.5 * os.cpu_count() and not arguments.force:
        sys.exit(f"compare: the machine is busy (load {load:.1f} on {os.cpu_count()} cores); wait, or add --force")
    peers = [Peer([arguments.step, *both]), Peer([arguments.python, str(HERE / "torch_step.py"), *both])]
    if peers[0].about["parameters"] != peers[1].about["parameters"]:
        sys.exit("compare: the models differ in size")
    ratios = []
    for _ in range(arguments.rounds):
        ours, theirs = (peer.run(arguments.steps) for peer in peers)
        ratios.append(theirs / ours)
    result = dict(machine=platform.processor() or platform.machine(), cores=os.cpu_count(), options=both,
                  peers=[peer.summary() for peer in peers], ratio=statistics.median(ratios), ratios=ratios)
    for peer in result["peers"]:
        print(f"{peer['name']:28s} median {peer['median']:8.2f} ms   least {peer['least']:8.2f}   most "
              f"{peer['most']:8.2f}   ({peer['steps']} steps)")
    print(f"ratio {result['ratio']:.2f} (rounds {min(ratios):.2f} to {max(ratios):.2f})")
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
