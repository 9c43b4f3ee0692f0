#!/usr/bin/env python3
"""Times the same work in heed and in other frameworks in turn, so that a change in the machine's load meets all alike.

usage: compare.py PROGRAM [--peers NAME,…] [--rounds N] [--steps N] [--python PATH] [--out F.json] [--force]
                  [OPTIONS OF ALL]

PROGRAM is bench/step (a training step of a sequence-to-sequence Transformer, beside PyTorch eager and compiled and JAX),
bench/gpt (one of GPT-2, beside PyTorch), bench/epoch (an epoch of pairs of mixed lengths, beside PyTorch) or bench/decode
(greedy decoding of 1,000 sources, beside CTranslate2). All begin from the same weights, and must agree: on the loss
without dropout, or on the tokens. Prints the median and spread of each and the ratio of every round; refuses on a busy
machine. A peer that is not installed is left out.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


# For each program: the name of a peer, its module, its program, what is added to the options of all.
PEERS = {"step": {"eager": ("torch", "torch_step.py", []), "compiled": ("torch", "torch_step.py", ["--compile"]),
                  "jax": ("jax", "jax_step.py", [])},
         "gpt": {"eager": ("torch", "torch_gpt.py", []), "compiled": ("torch", "torch_gpt.py", ["--compile"])},
         "epoch": {"eager": ("torch", "torch_epoch.py", [])},
         "decode": {"ctranslate2": ("ctranslate2", "ctranslate2_decode.py", [])}}


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
        return dict(**self.about, median=statistics.median(self.times),
                    least=min(self.times), most=max(self.times), steps=len(self.times))


def check_same_work(peers, tolerance):
    ours = peers[0].about
    for peer in peers[1:]:
        theirs = peer.about
        if "tokens" in ours:  # where two scores are equal but for rounding, outputs may part
            same = sum(a == b for a, b in zip(ours["tokens"], theirs["tokens"]))
            if len(ours["tokens"]) != len(theirs["tokens"]) or same < 0.98 * len(ours["tokens"]):
                sys.exit(f"compare: not the same outputs: {same} of {len(ours['tokens'])} tokens agree")
        elif theirs["parameters"] != ours["parameters"] or abs(theirs["loss"] - ours["loss"]) > tolerance:
            sys.exit(f"compare: not the same work: {ours} and {theirs}")
    for peer in peers:
        if "tokens" in peer.about:
            peer.about["tokens"] = len(peer.about["tokens"])


def peer_commands(known, names, python, options):
    """How to start those of the peers that are there."""
    commands = []
    for name in names.split(",") if names else known:
        if name not in known:
            sys.exit(f"compare: there is no peer '{name}'; there are: {', '.join(known)}")
        module, program, more = known[name]
        if name == "jax" and "bf16" in options:
            print("jax is left out: it computes in f32 here", file=sys.stderr)
        elif subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
            print(f"{name} is left out: {python} has no {module}", file=sys.stderr)
        else:
            commands.append([python, str(HERE / program), *options, *more])
    return commands


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers", help="by default all")
    parser.add_argument("--out")
    parser.add_argument("--force", action="store_true", help="time even on a busy machine")
    arguments, options = parser.parse_known_args()
    load = os.getloadavg()[0]
    if load > 0.5 * os.cpu_count() and not arguments.force:
        sys.exit(f"compare: the machine is busy (load {load:.1f} on {os.cpu_count()} cores); wait, or add --force")
    with tempfile.TemporaryDirectory() as folder:
        options += ["--weights", f"{folder}/first.safetensors"]
        known = PEERS[pathlib.Path(arguments.program).name]
        commands = [[arguments.program, *options], *peer_commands(known, arguments.peers, arguments.python, options)]
        peers = [Peer(command) for command in commands]
    check_same_work(peers, 2e-2 if "bf16" in options else 1e-4)
    rounds = [[peer.run(arguments.steps) for peer in peers] for _ in range(arguments.rounds)]
    result = dict(date=datetime.date.today().isoformat(), machine=processor(), cores=os.cpu_count(),
                  rounds=arguments.rounds, steps=arguments.steps, options=options[:-2], peers=[])
    for i, peer in enumerate(peers):
        ratios = [times[i] / times[0] for times in rounds]
        result["peers"].append(dict(**peer.summary(), ratio=statistics.median(ratios), ratios=ratios))
    for peer in result["peers"]:
        rate = f"   {1e3 * peer['tokens'] / peer['median']:,.0f} tokens/s" if "tokens" in peer else ""
        if "peak_mebibytes" in peer:
            rate += f"   {peer['peak_mebibytes']:,.0f} MiB at most"
        print(f"{peer['name']:28s} median {peer['median']:8.2f} ms   least {peer['least']:8.2f}   most "
              f"{peer['most']:8.2f}   ratio {peer['ratio']:.2f} ({min(peer['ratios']):.2f} to {max(peer['ratios']):.2f}){rate}")
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
