"""How long programs take from their start until they have learned a task: what compare.py does with bench/learn."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

LOSS_TOLERANCE = 1e-4


def learn(command):
    """Runs a program that prints a line before its first step and one after each evaluation. `seconds` is counted from before
    the process exists until the line of the last evaluation is here, `ready` until the first line."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [(json.loads(line), time.monotonic() - begin) for line in process.stdout]
    if process.returncode or len(lines) < 2:
        sys.exit(f"compare: {' '.join(command)} ended with {process.returncode} after {len(lines)} lines")
    (about, ready), (last, seconds) = lines[0], lines[-1]
    return dict(about, ready=ready, seconds=seconds, **last, milliseconds_per_step=1e3 * (seconds - ready) / last["step"])


def check_learned_the_same(runs, target):
    ours = runs[0]
    for run in runs:
        if run["parameters"] != ours["parameters"] or abs(run["loss"] - ours["loss"]) > LOSS_TOLERANCE:
            sys.exit(f"compare: not the same work: {ours} and {run}")
        if run["token_accuracy"] < target:
            sys.exit(f"compare: {run['name']} has {run['token_accuracy']} of the tokens right after the recipe's {run['step']} "
                     f"steps, not {target}")


def learning_round(program, options, seed, peers):
    """All programs once, each to its end, from the same first weights and on the same batches."""
    command = [program, *options, "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*command, "--write", folder], check=True)
        runs = [learn(command), *(learn([*peer, folder]) for peer in peers)]
        check_learned_the_same(runs, json.loads((pathlib.Path(folder) / "recipe.json").read_text())["target-accuracy"])
    for run in runs:
        print(f"seed {seed}   {run['name']:24s} {run['seconds']:7.1f} s, {run['ready']:.1f} of them before the first step   "
              f"{run['step']} steps of {run['milliseconds_per_step']:.1f} ms", flush=True)
    return dict(seed=seed, runs=runs)


def summary(rounds):
    """For each program the middle and the range of what the rounds have, and the ratios to the first program in each round."""
    programs = []
    for i, run in enumerate(rounds[0]["runs"]):
        program = dict(name=run["name"])
        for what in ("seconds", "ready", "step", "milliseconds_per_step"):
            values = [row["runs"][i][what] for row in rounds]
            ratios = [row["runs"][i][what] / row["runs"][0][what] for row in rounds]
            program[what] = dict(median=statistics.median(values), least=min(values), most=max(values),
                                 ratio=statistics.median(ratios), ratios=ratios)
        programs.append(program)
    return programs


def compare_learning(program, peers, arguments, options):
    """Round by round with the next seed, so that what is learned from differs."""
    rounds = [learning_round(program, options, arguments.seed + i, peers) for i in range(arguments.rounds)]
    programs = summary(rounds)
    for peer in programs:
        print(f"{peer['name']:24s} " + "   ".join(
            f"{name} {v['median']:.1f} ({v['least']:.1f} to {v['most']:.1f}), ratio {v['ratio']:.2f} ({min(v['ratios']):.2f} to "
            f"{max(v['ratios']):.2f})"
            for name, v in (("seconds", peer["seconds"]), ("steps", peer["step"]), ("ms a step", peer["milliseconds_per_step"]))))
    return dict(peers=programs, learned=rounds)
