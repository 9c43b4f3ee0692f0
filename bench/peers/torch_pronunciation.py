#!/usr/bin/env python3
"""The model of `translate train --preset pronounce --position sinusoidal` in PyTorch: the same shape, data, split, tokens a batch,
dropout, smoothing, optimizer and schedule, with its batches of like length padded. Prints seconds and errors after each epoch, for
a comparison at equal steps or at equal time.

    pip install torch
    bench/peers/torch_pronunciation.py cmudict.dict --minutes 10"""
import argparse
import collections
import math
import random
import time

import torch
from torch import nn
from torch.nn import functional as F

from compare_pronunciation import TEST_SHARE, errors, position_of, pronunciations

PAD, START, END = 0, 1, 2
VALID_SHARE = 0.022
SHAPE = dict(d_model=128, nhead=4, dim_feedforward=512, dropout=0.1, batch_first=True, norm_first=True)
LAYERS = 3


def vocabulary(sequences):
    return {symbol: 3 + i for i, symbol in enumerate(sorted({s for sequence in sequences for s in sequence}))}


class Model(nn.Module):
    def __init__(self, letters, phonemes):
        super().__init__()
        d = SHAPE["d_model"]
        self.source, self.target = nn.Embedding(letters, d), nn.Embedding(phonemes, d)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=d**-0.5)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**SHAPE), LAYERS, nn.LayerNorm(d), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**SHAPE), LAYERS, nn.LayerNorm(d))
        self.dropout, self.bias = nn.Dropout(SHAPE["dropout"]), nn.Parameter(torch.zeros(phonemes))
        angle = torch.arange(128)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).reshape(128, d))
        for parameter in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, table, ids):
        return self.dropout(table(ids) * SHAPE["d_model"] ** 0.5 + self.positions[: ids.shape[1]])

    def encode(self, ids):
        return self.encoder(self.embed(self.source, ids), src_key_padding_mask=ids == PAD)

    def decode(self, ids, memory, source):
        mask = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool), 1)
        x = self.decoder(self.embed(self.target, ids), memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=source == PAD)
        return F.linear(x, self.target.weight, self.bias)

    @torch.no_grad()
    def greedy(self, source, longest=40):
        memory, ids = self.encode(source), torch.full((len(source), 1), START)
        for _ in range(longest):
            ids = torch.cat([ids, self.decode(ids, memory, source)[:, -1].argmax(-1, keepdim=True)], 1)
            if (ids == END).any(1).all():
                break
        return ids[:, 1:].tolist()


def padded(rows):
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def batches(pairs, tokens, rng):
    """As data::Loader: shuffled, sorted by length in windows, cut by tokens, and shuffled again."""
    rng.shuffle(pairs)
    for first in range(0, len(pairs), 102_400):
        window = sorted(pairs[first : first + 102_400], key=lambda pair: (len(pair[1]), len(pair[0])))
        found, used = [[]], 0
        for pair in window:
            rows = len(pair[0]) + len(pair[1]) - 1
            if used + rows > tokens:
                found.append([])
                used = 0
            found[-1].append(pair)
            used += rows
        rng.shuffle(found)
        yield from found


def judge(model, words, letters, names):
    model.eval()
    answers, ordered = {}, sorted(words, key=len)
    for first in range(0, len(ordered), 256):
        part = ordered[first : first + 256]
        sources = padded([[START, *(letters.get(c, 3) for c in word), END] for word in part])
        for word, ids in zip(part, model.greedy(sources)):
            answers[word] = tuple(names[i] for i in (ids[: ids.index(END)] if END in ids else ids) if i > END)
    model.train()
    return errors(words, answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dictionary")
    parser.add_argument("--epochs", type=int, default=22)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many minutes of training")
    parser.add_argument("--steps", type=int, help="of the schedule; by default those of --epochs")
    parser.add_argument("--judged", type=int, default=1 << 30, help="words that are judged, at most")
    parser.add_argument("--threads", type=int, default=2)
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    torch.manual_seed(1)
    words = pronunciations(c.dictionary)
    parts = collections.defaultdict(dict)
    for word, known in words.items():
        p = position_of(word)
        parts["test" if p < TEST_SHARE else "valid" if p < TEST_SHARE + VALID_SHARE else "train"][word] = known
    for name in ("valid", "test"):
        parts[name] = dict(list(parts[name].items())[: c.judged])
    letters = vocabulary(parts["train"])
    phonemes = vocabulary(known for all_known in parts["train"].values() for known in all_known)
    names = {number: symbol for symbol, number in phonemes.items()}
    pairs = [([START, *map(letters.get, word), END], [START, *map(phonemes.get, known), END])
             for word, all_known in parts["train"].items() for known in sorted(all_known)]
    model = Model(len(letters) + 3, len(phonemes) + 3)
    print(f"{len(pairs)} pairs, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)
    total = c.steps or c.epochs * sum(1 for _ in batches(pairs, 1000, random.Random(1)))
    warmup, rng, step, seconds = 400, random.Random(1), 0, 0.0
    for epoch in range(1, c.epochs + 1):
        begin = time.perf_counter()
        for batch in batches(pairs, 1000, rng):
            if step == total or seconds + time.perf_counter() - begin > 60 * c.minutes:
                break
            step += 1
            rate = step / warmup if step <= warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * rate
            source, target = padded([pair[0] for pair in batch]), padded([pair[1] for pair in batch])
            logits = model.decode(target[:, :-1], model.encode(source), source)
            labels = target[:, 1:].flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        seconds += time.perf_counter() - begin
        phoneme, word = judge(model, parts["valid"], letters, names)
        print(f"epoch {epoch}  step {step}  {seconds:.0f} s  {1000 * seconds / step:.1f} ms a step  loss {loss.item():.4f}  "
              f"phoneme error {phoneme:.2f} %  word error {word:.2f} %", flush=True)
        if step == total or seconds > 60 * c.minutes:
            break
    phoneme, word = judge(model, parts["test"], letters, names)
    print(f"test, greedy: phoneme error {phoneme:.2f} %, word error {word:.2f} % of {len(parts['test'])}")


if __name__ == "__main__":
    main()
