"""An epoch of training in PyTorch on the batches of bench/epoch, from its weights. Its batches hold pairs of like length, and
here they are padded to their longest, ahead of the time that is measured."""
import argparse
import json

import torch

import peer
import torch_training
from torch_step import Model, RENAMED
from torch_training import PAD


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def read_batches(path):
    """For each batch the model's inputs and its labels. What is padded in a target comes after all that counts, where the
    causal mask hides it; in a source it is hidden by a mask, where there is any."""
    for line in open(path):
        batch = json.loads(line)
        source = padded(batch["source"])
        seen = source != PAD
        mask = None if seen.all() else seen[:, None, None, :]
        yield (source, padded(batch["target"]), mask), padded(batch["labels"])


def main():
    parser = argparse.ArgumentParser()
    peer.add_integers(parser, dict(peer.MODEL, pairs=5000, batch=32, min_length=3, max_length=10))
    parser.add_argument("--dropout", type=float, default=0.1)
    c = torch_training.parse(parser)
    model = Model(c)
    torch_training.load(model, c.weights, RENAMED)
    batches = list(read_batches(c.weights + ".batches"))
    training = torch_training.Training(c, model, torch.optim.Adam(model.parameters(), lr=1e-4, fused=True))
    loss = sum(training.loss_without_dropout(*batch) for batch in batches) / len(batches)

    def epoch():
        for batch in batches:
            training.step(*batch)

    epoch()
    peer.take_turns(dict(training.about(), loss=loss), epoch)


if __name__ == "__main__":
    main()
