#!/usr/bin/env python3
"""The model of `translate train --preset translate` in PyTorch, with the same texts, sub-words, batches in the same order, shape,
dropout, smoothing, optimizer and schedule; its batches are padded. It takes sub-words and settings from the folder of heed's run,
prints seconds and validation loss, and at last BLEU and chrF of its greedy outputs for the test.

    pip install torch sentencepiece sacrebleu
    bench/peers/torch_translation.py data/en-de runs/en-de --minutes 24"""
import argparse
import math
import pathlib
import time
import tomllib
import unicodedata

import numpy as np
import sentencepiece
import torch
from torch import nn
from torch.nn import functional as F

PAD, START, END = 0, 1, 2
MASK = 0xFFFFFFFF


def philox(c0, c1, c2, c3, key):
    """heed/core/base/philox.h, of arrays of counters."""
    c = [np.asarray(x, np.uint64) & np.uint64(MASK) for x in np.broadcast_arrays(c0, c1, c2, c3)]
    k0, k1 = key & MASK, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        low, shift = np.uint64(MASK), np.uint64(32)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def shuffle(items, seed, epoch, stream):
    """As data::BatchOrder."""
    i = np.arange(len(items), dtype=np.uint64)
    low, high, *_ = philox(i, 0, stream, epoch, seed ^ 0x6C6F616465724B65)
    for place in range(len(items) - 1, 0, -1):
        other = ((int(high[place]) << 32 | int(low[place])) * (place + 1)) >> 64
        items[place], items[other] = items[other], items[place]


def read(path):
    return [tuple(line.rstrip("\r\n").split("\t")) for line in open(path, encoding="utf-8")]


def kept(pairs):
    return list(dict.fromkeys(pair for pair in pairs if all(side.strip() for side in pair)))


class SubWords:
    def __init__(self, folder):
        content = (folder / "source.tokenizer").read_bytes()
        self.model = sentencepiece.SentencePieceProcessor(model_proto=content[content.index(b"\n\n") + 2 :])

    def encode(self, text):
        return self.model.encode(unicodedata.normalize("NFC", text))

    def decode(self, ids):
        return self.model.decode(ids)


class Data:
    """The pairs of an epoch as data::MixedDataset has them, and batches as data::Loader."""

    def __init__(self, files, words, settings):
        self.seed, self.tokens, longest = settings["seed"], settings["batch-tokens"], settings["max-tokens"]
        self.window = 100 * settings["batch-size"]
        self.parts = []
        for file in files:
            encoded = [(words.encode(s), words.encode(t)) for s, t in kept(read(file))]
            self.parts.append([pair for pair in encoded if max(map(len, pair)) <= longest])
        sizes = [len(part) for part in self.parts]
        weights = np.cumsum([(size / max(sizes)) ** (1 / settings["mix-temperature"]) for size in sizes])
        self.first = [0, *(math.floor(sum(sizes) * w / weights[-1] + 0.5) for w in weights)]
        self.first[-1] = sum(sizes)

    def pair(self, epoch, index):
        part = next(p for p in range(len(self.parts)) if index < self.first[p + 1])
        share = self.first[part + 1] - self.first[part]
        return self.parts[part][(epoch * share + index - self.first[part]) % len(self.parts[part])]

    def batches(self, epoch):
        order = list(range(self.first[-1]))
        shuffle(order, self.seed, epoch, 0)
        for number, begin in enumerate(range(0, len(order), self.window)):
            window = [self.pair(epoch, index) for index in order[begin : begin + self.window]]
            window.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
            found, used = [[]], 0
            for pair in window:
                rows = len(pair[0]) + 2 + len(pair[1]) + 1
                if used + rows > self.tokens or len(found[-1]) == self.window // 100:
                    found.append([])
                    used = 0
                found[-1].append(pair)
                used += rows
            shuffle(found, self.seed, epoch, number + 1)
            yield from found


class Attention(nn.Module):
    def __init__(self, d, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, memory, mask, causal, angles=None):
        def split(rows):
            return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        if angles is not None:
            q, k = turned(q, angles), turned(k, angles)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2))


def turned(x, angles):
    """Rotary positions, halves paired."""
    cos, sin = (table[: x.shape[2]].to(x.dtype) for table in angles)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self, c, decodes):
        super().__init__()
        d, self.decodes = c["d-model"], decodes
        make = lambda: Attention(d, c["heads"], c["attention-dropout"])
        self.own, self.cross = make(), make() if decodes else None
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3 if decodes else 2))
        self.wide, self.narrow, self.dropout = nn.Linear(d, c["d-ff"]), nn.Linear(c["d-ff"], d), nn.Dropout(c["dropout"])

    def forward(self, x, mask, angles, memory=None, memory_mask=None):
        h = self.norms[0](x)
        x = x + self.dropout(self.own(h, h, mask, self.decodes, angles))
        if self.decodes:
            x = x + self.dropout(self.cross(self.norms[2](x), memory, memory_mask, False))
        return x + self.dropout(self.narrow(self.dropout(F.relu(self.wide(self.norms[1](x))))))


class Model(nn.Module):
    def __init__(self, vocab, c):
        super().__init__()
        d = c["d-model"]
        self.scale = d**0.5
        self.table, self.bias = nn.Embedding(vocab, d), nn.Parameter(torch.zeros(vocab))
        self.encoder = nn.ModuleList(Layer(c, False) for _ in range(c["layers"]))
        self.decoder = nn.ModuleList(Layer(c, True) for _ in range(c["layers"]))
        self.ends, self.dropout = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)]), nn.Dropout(c["dropout"])
        width = d // c["heads"]
        angle = torch.arange(1024)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                one_of_three = name.rsplit(".", 2)[1] in "qkv"  # heed draws the three as one matrix
                nn.init.xavier_uniform_(parameter, 0.5**0.5 if one_of_three else 1.0)
            elif "norms" not in name and "ends" not in name:
                nn.init.zeros_(parameter)
        nn.init.normal_(self.table.weight, std=d**-0.5)

    def run(self, layers, end, ids, mask, *memory):
        x = self.dropout(self.table(ids) * self.scale)
        for layer in layers:
            x = layer(x, mask, (self.cos, self.sin), *memory)
        return end(x)

    def encode(self, source):
        mask = (source != PAD)[:, None, None, :]
        return self.run(self.encoder, self.ends[0], source, mask), mask

    def decode(self, target, memory, mask):
        x = self.run(self.decoder, self.ends[1], target, None, memory, mask)
        return F.linear(x, self.table.weight, self.bias)

    @torch.no_grad()
    def greedy(self, source, longest):
        (memory, mask), ids = self.encode(source), torch.full((len(source), 1), START)
        ended = torch.zeros(len(source), dtype=torch.bool)
        while not ended.all() and ids.shape[1] <= longest:
            ids = torch.cat([ids, self.decode(ids, memory, mask)[:, -1].argmax(-1, keepdim=True)], 1)
            ended |= ids[:, -1] == END
        return [row[: row.index(END)] if END in row else row for row in ids[:, 1:].tolist()]


def padded(rows):
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def tensors(batch):
    return padded([[START, *source, END] for source, _ in batch]), padded([[START, *target, END] for _, target in batch])


def loss_of(model, batch, smoothing, reduction="mean"):
    source, target = tensors(batch)
    logits = model.decode(target[:, :-1], *model.encode(source)).float()
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction=reduction)


def in_parts(items, size=64):
    for first in range(0, len(items), size):
        yield items[first : first + size]


@torch.no_grad()
def validation_loss(model, pairs):
    model.eval()
    pairs = sorted(pairs, key=lambda pair: (len(pair[1]), len(pair[0])))
    total = sum(loss_of(model, batch, 0.0, "sum").item() for batch in in_parts(pairs))
    model.train()
    return total / sum(len(target) + 1 for _, target in pairs)


def translate(model, words, sources):
    model.eval()
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    outputs = [""] * len(sources)
    for part in in_parts(order):
        encoded = [[START, *words.encode(sources[i]), END] for i in part]
        for i, ids in zip(part, model.greedy(padded(encoded), 2 * len(encoded[-1]) + 10)):
            outputs[i] = words.decode([x for x in ids if x > END])
    return outputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="the folder of bench/en_de.py")
    parser.add_argument("run", type=pathlib.Path, help="the folder of heed's training")
    parser.add_argument("--minutes", type=float, default=24, help="of training")
    parser.add_argument("--steps", type=int, help="of the schedule; by default so many as the minutes have room for, measured on the first")
    parser.add_argument("--judged", type=int, default=1 << 30, help="test texts, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="products in bf16 (autocast)")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    c = tomllib.loads((o.run / "config.toml").read_text())
    c.setdefault("attention-dropout", c["dropout"])
    torch.manual_seed(c["seed"])
    words = SubWords(o.run)
    data = Data([o.data / "catalogues.tsv", o.data / "dictionary.tsv"], words, c)
    valid = [(words.encode(s), words.encode(t)) for s, t in read(o.data / "valid.tsv")]
    model = Model(words.model.get_piece_size(), c)
    print(f"{data.first[-1]} pairs, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["adam-eps"], fused=True)
    total, step, seconds, epoch = o.steps, 0, 0.0, 0
    while seconds < 60 * o.minutes and (total is None or step < total):
        begin = time.perf_counter()
        for batch in data.batches(epoch):
            now = seconds + time.perf_counter() - begin
            if now > 60 * o.minutes or step == total:
                break
            if total is None and step == 100:
                total = int(60 * o.minutes / now * step)
            step += 1
            span = max(1, (total or 10**9) - c["warmup"])
            rate = step / c["warmup"] if step <= c["warmup"] else 0.5 * (1 + math.cos(math.pi * min(1, (step - c["warmup"]) / span)))
            for group in optimizer.param_groups:
                group["lr"] = c["lr"] * rate
            with torch.autocast("cpu", torch.bfloat16, enabled=o.bf16):
                loss = loss_of(model, batch, c["label-smoothing"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), c["clip"])
            optimizer.step()
        seconds += time.perf_counter() - begin
        epoch += 1
        print(f"epoch {epoch}  step {step} of {total}  {seconds:.0f} s  {1000 * seconds / step:.0f} ms a step  loss {loss.item():.4f}  "
              f"valid loss {validation_loss(model, valid):.4f}", flush=True)
    import sacrebleu
    test = kept(read(o.data / "test.tsv"))
    by_source = {}
    for source, target in test:
        by_source.setdefault(source, []).append(unicodedata.normalize("NFC", target))
    sources = list(by_source)[: o.judged]
    outputs = translate(model, words, sources)
    references = [[by_source[s][n] if n < len(by_source[s]) else None for s in sources] for n in range(max(map(len, by_source.values())))]
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        print(f"test, greedy, {len(sources)} texts: {metric.corpus_score(outputs, references, n_bootstrap=1000)}")


if __name__ == "__main__":
    main()
