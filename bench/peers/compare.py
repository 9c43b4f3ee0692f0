#!/usr/bin/env python3
"""Times the same work in heed and in other frameworks in turn, so that a change in the machine's load meets all alike.

usage: compare.py PROGRAM [--peers NAME,…] [--llm-c FOLDER] [--starts N] [--rounds N] [--steps N] [--milliseconds X]
                  [--seed N] [--python PATH] [--out F.json] [--force] [OPTIONS OF ALL]

PROGRAM is bench/step (a training step of a sequence-to-sequence Transformer, beside PyTorch eager and compiled and JAX),
bench/gpt (one of GPT-2, beside PyTorch and, where --llm-c names a checkout of it, llm.c), bench/epoch (an epoch of pairs of
mixed lengths, beside PyTorch), bench/decode (greedy decoding of 1,000 sources, beside CTranslate2), bench/encode (vectors of
texts, --model FOLDER --texts FILE, beside PyTorch), bench/kernels (single operations and their gradients, beside PyTorch and
beside a copy or a product in the same round) or bench/learn (a whole training, from the start of the process until 99 % of
the tokens of held-out pairs are right, beside PyTorch). All begin from the same weights or inputs, and must agree: on the
loss without dropout, on tokens or vectors, or on what a kernel results in. Prints the median and spread of each and the ratio
of every round; refuses on a busy machine. Where a program's memory happens to lie is worth a few percent: with --starts all
begin anew so often, each time for as many rounds. A peer that is not installed is left out.
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
import time

import learning

HERE = pathlib.Path(__file__).resolve().parent


# For each program: the name of a peer, its module, its program, what is added to the options of all.
PEERS = {"step": {"eager": ("torch", "torch_step.py", []), "compiled": ("torch", "torch_step.py", ["--compile"]),
                  "jax": ("jax", "jax_step.py", [])},
         "gpt": {"eager": ("torch", "torch_gpt.py", []), "compiled": ("torch", "torch_gpt.py", ["--compile"]),
                 "llm.c": (None, "llm_c.py", [])},
         "epoch": {"eager": ("torch", "torch_epoch.py", [])},
         "learn": {"eager": ("torch", "torch_learn.py", [])},
         "kernels": {"eager": ("torch", "torch_kernels.py", [])},
         "decode": {"ctranslate2": ("ctranslate2", "ctranslate2_decode.py", [])},
         "encode": {"eager": ("transformers", "torch_encode.py", [])}}


class Peer:
    """A program that works as often as it is told and answers with the milliseconds of each time."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self.answer(f"{command[0]} ended at once")

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def answer(self, otherwise):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare: {otherwise}")
        return json.loads(line)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.answer(f"{self.about['name']} ended")

    def run(self, steps, *what):
        return self.ask("run", steps, *what)["milliseconds"]


def rested(turn):
    """A turn on cores that are free: PyTorch's threads spin for 4 ms after its last operation."""
    time.sleep(0.02)
    return turn()


def times_of(turns, rounds):
    """Calls each of `turns`, which answer with milliseconds, once a round."""
    return [[rested(turn) for turn in turns] for _ in range(rounds)]


def spreads(times):
    """Of each turn; and how it compares with the first: the ratio of medians of each round, the middle of them, and the
    ratio of the medians of all rounds together."""
    medians = [[statistics.median(turn) for turn in row] for row in times]
    results = []
    for i in range(len(times[0])):
        mine, ratios = sum((row[i] for row in times), []), [row[i] / row[0] for row in medians]
        median = statistics.median(mine)
        results.append(dict(median=median, least=min(mine), most=max(mine), steps=len(mine), ratio=statistics.median(ratios),
                            ratios=ratios, ratio_of_medians=median / (results[0]["median"] if results else median)))
    return results


def ratio_text(spread):
    ratios = spread["ratios"]
    return (f"ratio {spread['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; "
            f"{spread['ratio_of_medians']:.2f} of medians)")


def check_same_work(peers, tolerance):
    ours = peers[0].about
    for peer in peers[1:]:
        theirs = peer.about
        if "tokens" in ours:  # where two scores are equal but for rounding, outputs may part
            same = sum(a == b for a, b in zip(ours["tokens"], theirs["tokens"]))
            if len(ours["tokens"]) != len(theirs["tokens"]) or same < 0.98 * len(ours["tokens"]):
                sys.exit(f"compare: not the same outputs: {same} of {len(ours['tokens'])} tokens agree")
        elif "vectors" in ours:
            if len(ours["vectors"]) != len(theirs["vectors"]) or any(
                    abs(a - b) > tolerance for a, b in zip(ours["vectors"], theirs["vectors"])):
                sys.exit("compare: not the same vectors")
        elif theirs["parameters"] != ours["parameters"] or abs(theirs["loss"] - ours["loss"]) > tolerance:
            sys.exit(f"compare: not the same work: {ours} and {theirs}")
    for peer in peers:
        if "tokens" in peer.about:
            peer.about["tokens"] = len(peer.about["tokens"])
        peer.about.pop("vectors", None)


def why_missing(name, module, arguments, options):
    """What keeps a peer from being timed, if anything does."""
    if name in ("jax", "llm.c") and "bf16" in options:
        return "it computes in f32 here"
    if name == "llm.c":
        return None if arguments.llm_c else "--llm-c FOLDER tells where it is"
    if subprocess.run([arguments.python, "-c", f"import {module}"], capture_output=True).returncode:
        return f"{arguments.python} has no {module}"
    return None


def peer_commands(known, arguments, options):
    """How to start those of the peers that are there."""
    commands = []
    for name in arguments.peers.split(",") if arguments.peers else known:
        if name not in known:
            sys.exit(f"compare: there is no peer '{name}'; there are: {', '.join(known)}")
        module, program, more = known[name]
        if reason := why_missing(name, module, arguments, options):
            print(f"{name} is left out: {reason}", file=sys.stderr)
        else:
            checkout = ["--llm-c", arguments.llm_c] if name == "llm.c" else []
            commands.append([arguments.python, str(HERE / program), *options, *more, *checkout])
    return commands


def start(work, arguments, options):
    """Our program and its peers, which wait for their turns."""
    with tempfile.TemporaryDirectory() as folder:
        first = [] if work in ("kernels", "encode") else ["--weights", f"{folder}/first.safetensors"]
        commands = [[arguments.program, *options, *first],
                    *peer_commands(PEERS[work], arguments, [*options, *first])]
        return [Peer(command) for command in commands]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def check_same_values(peers, name, tolerance):
    """Elements of a kernel's results must agree, each within a share of the largest."""
    ours, *others = (peer.ask("values", name)["values"] for peer in peers)
    for peer, theirs in zip(peers[1:], others):
        if [len(v) for v in theirs] != [len(v) for v in ours]:
            sys.exit(f"compare: {name} has other results in {peer.about['name']}")
        for a, b in zip(ours, theirs):
            most = max(map(abs, a))
            if not all(abs(x - y) <= tolerance * most for x, y in zip(a, b)):
                sys.exit(f"compare: {name} has other results in {peer.about['name']}: {b} instead of {a}")


def kernel_turn(peer, name, milliseconds):
    """As many calls as fill that time, three at least; the first ones, not counted, tell how many that is."""
    calls = max(3, min(2000, round(milliseconds / min(peer.run(3, name)))))
    return lambda: peer.run(calls, name)


def compare_kernels(arguments, options):
    """Kernel by kernel: ours, its floor (what the machine itself does in our program), and the same in the peers."""
    peers, results = start("kernels", arguments, options), []
    for case in peers[0].about["cases"]:
        name, unit = case["name"], case["unit"]
        check_same_values(peers, name, 3e-2 if "bf16" in options else 2e-4)
        runs = [(peers[0], name), (peers[0], case["floor"]), *((peer, name) for peer in peers[1:])]
        turns = [kernel_turn(peer, what, arguments.milliseconds) for peer, what in runs]
        ours, floor, *others = spreads(times_of(turns, arguments.rounds))
        least = case["amount"] / case["floor_amount"]  # of the floor's time that our work needs at the machine's rate
        result = dict(name=name, unit=unit, rate=case["amount"] / ours["median"] * 1e-6,
                      machine=case["floor_amount"] / floor["median"] * 1e-6, share=least * floor["ratio"], ours=ours,
                      floor=floor, peers=[dict(name=peer.about["name"], **spread) for peer, spread in zip(peers[1:], others)])
        results.append(result)
        print(f"{name:42s} {1e3 * ours['median']:10.1f} us {result['rate']:7.1f} of {result['machine']:6.1f} G{unit}/s "
              f"{100 * result['share']:4.0f} %" + "".join(
                  f"   {peer['name']} {1e3 * peer['median']:10.1f} us, {ratio_text(peer)}" for peer in result["peers"]),
              flush=True)
    for i, peer in enumerate(peers[1:]):
        ratios = [result["peers"][i]["ratio"] for result in results if not result["name"].startswith("copy/")]
        print(f"as fast as {peer.about['name']} at least: {sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}")
    return dict(programs=[peer.about["name"] for peer in peers], kernels=results)


def compare_steps(work, arguments, options):
    """The same work in all, as a whole."""
    times = []
    for _ in range(arguments.starts):
        peers = start(work, arguments, options)
        check_same_work(peers, 2e-2 if "bf16" in options else 1e-4)
        times += times_of([lambda peer=peer: peer.run(arguments.steps) for peer in peers], arguments.rounds)
        for peer in peers:
            peer.end()
    results = [dict(**peer.about, **spread) for peer, spread in zip(peers, spreads(times))]
    for peer in results:
        rate = f"   {1e3 * peer['tokens'] / peer['median']:,.0f} tokens/s" if "tokens" in peer else ""
        if "peak_mebibytes" in peer:
            rate += f"   {peer['peak_mebibytes']:,.0f} MiB at most"
        print(f"{peer['name']:28s} median {peer['median']:8.2f} ms   least {peer['least']:8.2f}   most "
              f"{peer['most']:8.2f}   {ratio_text(peer)}{rate}")
    return dict(starts=arguments.starts, steps=arguments.steps, peers=results)


def rounded(value):
    """Numbers to five digits, which is more than times are worth."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def share_of_busy_cores(seconds=2):
    """Of the cores' time, also what a hypervisor gave to others. The load average would remember the run before this one."""
    def ticks():
        times = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]  # user … steal
        return times[3] + times[4], sum(times)  # idle and waiting for a disk, all
    idle, total = ticks()
    time.sleep(seconds)
    idle_later, total_later = ticks()
    return 1 - (idle_later - idle) / max(total_later - total, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--starts", type=int, default=1, help="of all programs (not kernels, learn)")
    parser.add_argument("--rounds", type=int, default=8, help="after each start")
    parser.add_argument("--steps", type=int, default=12, help="a round, of whole steps")
    parser.add_argument("--milliseconds", type=float, default=20, help="a round, of each kernel")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next rounds have the next ones (learn)")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers", help="by default all")
    parser.add_argument("--llm-c", metavar="FOLDER", help="a checkout of github.com/karpathy/llm.c, to time beside gpt")
    parser.add_argument("--out")
    parser.add_argument("--force", action="store_true", help="time even on a busy machine")
    arguments, options = parser.parse_known_args()
    if not arguments.force and (busy := share_of_busy_cores()) > 0.25:
        sys.exit(f"compare: the machine is busy ({busy:.0%} of its {os.cpu_count()} cores' time); wait, or add --force")
    work = pathlib.Path(arguments.program).name
    if work == "learn":
        peers = peer_commands(PEERS[work], arguments, [])
        found = learning.compare_learning(arguments.program, peers, arguments, options)
    elif work == "kernels":
        found = compare_kernels(arguments, options)
    else:
        found = compare_steps(work, arguments, options)
    result = dict(date=datetime.date.today().isoformat(), machine=processor(), cores=os.cpu_count(),
                  rounds=arguments.rounds, options=options, **found)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(rounded(result), indent=1) + "\n")


if __name__ == "__main__":
    main()
