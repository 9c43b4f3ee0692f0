#!/usr/bin/env python3
"""A small Llama trained by heed and, at equal time, by PyTorch: validation loss and tokens a second, in turn, for some
seeds. With torch and sentencepiece:

    python3 torch_language_model.py --lm build/release/bin/lm --data build/kjv --steps 2700 --seeds 3 --threads 2

heed trains for --steps. PyTorch measures its rate, then trains as many steps as fit in the same time: the same model,
initialisation, optimizer, schedule and tokens (by the tokenizer that heed has learned), of the same documents, in
dense batches of as many tokens, cut from the documents one after another, so that it, too, computes no padding. Both
are judged on the same sequences of the documents that are held back.
"""
import argparse
import hashlib
import json
import math
import pathlib
import statistics
import subprocess
import tempfile
import time

import sentencepiece
import torch
from torch import nn
from torch.nn import functional as F

START, END = 1, 2


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.gate = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = ((t * cos + torch.cat((-t[..., t.shape[-1] // 2:], t[..., :t.shape[-1] // 2]), -1) * sin) for t in (q, k))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocab, width, heads, hidden, layers, context):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-5)
        self.layers = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if last else 0.02)
        size = width // heads
        angle = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def loss(self, tokens, targets, reduction="mean"):
        x, length = self.embedding(tokens), tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction=reduction)


def read_documents(folder, share):
    """Paragraphs of the folder's files, those for training and those held back, as `lm train --split hash` has them."""
    training, valid = [], []
    for file in sorted(pathlib.Path(folder).rglob("*.txt")):
        for text in file.read_text("utf-8").strip("\n").split("\n\n"):
            place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") / 2.0 ** 64
            (valid if place < share else training).append(text)
    return training, valid


def read_tokenizer(file):
    content = file.read_bytes()
    model = content[content.index(b"\n\n") + 2:]  # after heed's header
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def encode(tokenizer, documents):
    return [[START, *tokenizer.encode(text), END] for text in documents]


def validation(model, documents, context):
    """The mean loss of a token, over the sequences that the documents are cut into."""
    total, count = 0.0, 0
    with torch.no_grad():
        for ids in documents:
            for first in range(0, len(ids) - 1, context):
                piece = torch.tensor(ids[first:first + context + 1])
                total += model.loss(piece[None, :-1], piece[None, 1:], "sum").item()
                count += len(piece) - 1
    return total / count


class TorchTraining:
    def __init__(self, c, seed, vocab, documents):
        torch.manual_seed(seed)
        self.c = c
        hidden = -(-8 * c.d_model // 96) * 32
        self.model = Llama(vocab, c.d_model, max(1, c.d_model // 64), hidden, c.layers, c.context)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.random = torch.Generator().manual_seed(seed)
        self.documents, self.stream = documents, torch.empty(0, dtype=torch.long)

    def batch(self):
        need = self.c.batch_size * self.c.context + 1
        while len(self.stream) < need:
            order = torch.randperm(len(self.documents), generator=self.random).tolist()
            self.stream = torch.cat([self.stream, *(torch.tensor(self.documents[i]) for i in order)])
        taken, self.stream = self.stream[:need], self.stream[need - 1:]
        shape = (self.c.batch_size, self.c.context)
        return taken[:-1].view(shape), taken[1:].view(shape)

    def step(self, number, total):
        warm = min(1.0, (number + 1) / self.c.warmup)
        done = max(0.0, (number - self.c.warmup) / max(1, total - self.c.warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = self.c.lr * warm * (0.5 + 0.5 * math.cos(math.pi * done))
        loss = self.model.loss(*self.batch())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def train(self, total, seconds=math.inf):
        """Steps until their end, or the time's; the steps done and how long they took."""
        begin, done = time.perf_counter(), 0
        while done < total and time.perf_counter() - begin < seconds:
            self.step(done, total)
            done += 1
        return done, time.perf_counter() - begin


def run_heed(c, seed, out):
    words = [c.lm, "train", "--data", c.data, "--documents", "paragraph", "--split", "hash", "--valid-share", str(c.valid_share),
             "--tokenizer", "bpe", "--vocab", str(c.vocab), "--layers", str(c.layers), "--d-model", str(c.d_model), "--context",
             str(c.context), "--batch-size", str(c.batch_size), "--lr", str(c.lr), "--warmup", str(c.warmup), "--steps",
             str(c.steps), "--save-every", str(c.steps), "--seed", str(seed), "--threads", str(c.threads), "--json", "--out",
             str(out), "--force"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm", required=True)
    parser.add_argument("--data", required=True)
    for name, value in dict(steps=2700, seeds=3, threads=2, vocab=2000, layers=4, d_model=192, context=128, batch_size=16,
                            warmup=100).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--valid-share", type=float, default=0.05)
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    texts, held_back = read_documents(c.data, c.valid_share)
    characters = sum(map(len, held_back))
    ratios = []
    for seed in range(1, c.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            heed = run_heed(c, seed, pathlib.Path(folder) / "run")
            tokenizer = read_tokenizer(pathlib.Path(folder) / "run" / "model.tokenizer")
        documents, valid = encode(tokenizer, texts), encode(tokenizer, held_back)
        tokens = sum(len(ids) - 1 for ids in valid)
        seconds = c.steps * c.batch_size * c.context / heed["tokens_per_second"]
        probe = TorchTraining(c, seed, tokenizer.vocab_size(), documents)
        probe.train(3)
        steps, took = probe.train(20)
        training = TorchTraining(c, seed, tokenizer.vocab_size(), documents)
        steps, took = training.train(max(1, int(seconds * steps / took)), seconds)
        rate = steps * c.batch_size * c.context / took
        loss = validation(training.model, valid, c.context)
        ratios.append(heed["tokens_per_second"] / rate)
        for name, value, speed, count in (("heed", heed["valid_loss"], heed["tokens_per_second"], c.steps),
                                          ("PyTorch", loss, rate, steps)):
            print(f"seed {seed}  {name:8} {seconds:7.1f} s  {count:6} steps  {speed:9.0f} tokens/s  valid loss {value:.4f}  "
                  f"bits a character {value * tokens / math.log(2) / characters:.4f}", flush=True)
    print(f"heed's tokens a second over PyTorch's: {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
