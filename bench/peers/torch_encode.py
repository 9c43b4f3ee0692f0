"""Vectors of texts with PyTorch and transformers: the same work as bench/encode, from the same folder.

Prints a JSON object with the first numbers of each vector, then the milliseconds of each pass over all texts asked for on
standard input ("run N" lines), so that a driver can interleave it with other programs.
"""
import argparse
import os
import pathlib

import torch
from transformers import AutoModel, AutoTokenizer

import peer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if c.threads > 1 else "false"

    tokenizer = AutoTokenizer.from_pretrained(c.model)
    model = AutoModel.from_pretrained(c.model, dtype=torch.bfloat16 if c.dtype == "bf16" else torch.float32).eval()
    lines = [line for line in pathlib.Path(c.texts).read_bytes().split(b"\n") if line]
    texts = [line.decode() for line in sorted(lines, key=len, reverse=True)]
    batches = [texts[i:i + c.batch] for i in range(0, len(texts), c.batch)]

    def encode(batch):
        inputs = tokenizer(batch, padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
            counted = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            return torch.nn.functional.normalize((states * counted).sum(1).float() / counted.sum(1), dim=1)

    sample = torch.cat([encode(batch)[:, :4] for batch in batches]).flatten().tolist()
    peer.take_turns(dict(name=f"PyTorch {torch.__version__} {c.dtype}", vectors=sample),
                    lambda: [encode(batch) for batch in batches])


if __name__ == "__main__":
    main()
