"""Learns in PyTorch what bench/learn learns: by its recipe, from its first weights, on its batches. usage: torch_learn.py FOLDER

FOLDER is what `learn --write FOLDER` wrote. A batch is read, padded to its longest pair and made into tensors when its turn
comes; batches hold pairs of like length. Prints the same lines as bench/learn, and ends when as many tokens are right.
"""
import argparse
import json
import math
import pathlib
import sys

import torch

import torch_training
from torch_epoch import read_batches
from torch_step import RENAMED, Model
from torch_training import PAD

# What this program does; a recipe that says otherwise is refused.
DOES = {"optimizer": "adam", "weight-decay": 0, "schedule": "cosine", "clip": 1, "label-smoothing": 0, "norm": "pre",
        "activation": "relu", "position": "sinusoidal"}


def read_recipe(folder):
    """The recipe as torch_training takes its options."""
    recipe = json.loads((folder / "recipe.json").read_text())
    for name, ours in DOES.items():
        if recipe[name] != ours:
            sys.exit(f"torch_learn: {name} {recipe[name]}: only {ours} is known here")
    c = argparse.Namespace(**{name.replace("-", "_"): value for name, value in recipe.items()}, dtype="f32", compile=False)
    c.encoder_layers, c.decoder_layers = recipe.get("encoder-layers", c.layers), recipe.get("decoder-layers", c.layers)
    if recipe.get("attention-dropout", c.dropout) != c.dropout:
        sys.exit("torch_learn: all dropouts have the same rate here")
    return c


def cosine(c):
    """For each step the share of the highest rate: a rise along a line, then half a cosine down to zero."""
    total = max(c.last_step, c.warmup + 1)

    def share(step):
        if step < c.warmup:
            return (step + 1) / c.warmup
        return (1 + math.cos(math.pi * min(1, (step - c.warmup) / (total - c.warmup)))) / 2

    return share


def evaluate(model, batches):
    """Mean loss over all tokens, and the share of those that are right when the decoder sees the true ones before them."""
    loss = right = tokens = 0
    model.eval()
    with torch.inference_mode():
        for inputs, labels in batches:
            logits, counts = model(*inputs), labels != PAD
            loss += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD,
                                                      reduction="sum").item()
            right += ((logits.argmax(-1) == labels) & counts).sum().item()
            tokens += counts.sum().item()
    model.train()
    return loss / tokens, right / tokens


def tell(**line):
    print(json.dumps(line), flush=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    c = read_recipe(folder)
    torch.set_num_threads(c.threads)
    torch.manual_seed(c.seed)
    model = Model(c, pre_norm=True)
    torch_training.load(model, folder / "first.safetensors", RENAMED)
    optimizer = torch.optim.Adam(model.parameters(), lr=c.lr, betas=(c.beta1, c.beta2), eps=c.adam_eps, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine(c))
    training = torch_training.Training(c, model, optimizer)
    held_out = list(read_batches(folder / "held_out.jsonl"))
    tell(**training.about(), loss=evaluate(model, held_out)[0])
    for step, batch in enumerate(read_batches(folder / "training.jsonl"), 1):
        training.step(*batch)
        schedule.step()
        if step % c.evaluate_every == 0 or step == c.last_step:
            accuracy = evaluate(model, held_out)[1]
            tell(step=step, token_accuracy=accuracy)
            if accuracy >= c.target_accuracy:
                break


if __name__ == "__main__":
    main()
