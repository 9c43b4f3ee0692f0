"""Makes docs/interactive/attention.html: the attention of trained models on a page that needs no network.

    ./heed run copy_reverse train --epochs 3 --out runs/copy-reverse
    ./heed run lm                                              # leaves runs/lm, which knows the King James Bible
    python3 python/heed_interactive.py build/release/bin docs/interactive/attention.html

The programs' own numbers, in thousandths. Needs Python 3.11, and heed_safetensors.py beside it.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import heed_safetensors

SENTENCE = "And Moses took the rod of God in his hand, and Moses said unto"
SOURCE = "7 10 15 19 11"


def run(program, *arguments):
    """What a program prints with --json."""
    done = subprocess.run([program, *arguments, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def thousandths(matrix):
    return [[round(1000 * weight) for weight in row] for row in matrix]


def language_model(program, model, folder):
    """Heads of a model that `lm` trained, on a sentence that it looks back in."""
    layers = []
    for layer in range(json.loads((model / "config.json").read_text())["num_hidden_layers"]):
        shown = run(program, "attention", "--model", model, "--layer", str(layer), "--out", folder, SENTENCE)
        heads = [key for key in shown if key.startswith("head")]
        layers.append([thousandths(shown[head]) for head in sorted(heads, key=lambda key: int(key[4:]))])
    tokens = [token.replace("▁", "") for token in shown["tokens"]]
    return {
        "name": "A language model of the King James Bible",
        "about": "Each token predicts the next one from itself and those before it, so there is nothing above the diagonal. "
                 "Try layer 2, head 0, where most tokens look at the one before them, and layer 1, head 2, "
                 "where “his” looks at Moses.",
        "same": True, "rows": tokens, "columns": tokens, "layers": layers,
        "start": {"layer": 2, "head": 0, "query": len(tokens) - 1},
    }


def cross_attention(program, model, folder):
    """Cross-attention of a model that `copy_reverse` trained."""
    shown = run(program, "attention", "--model", model, "--input", SOURCE, "--out", folder)
    layers = []
    for name, array in sorted(heed_safetensors.read(folder / "attention.safetensors").items()):
        if not name.endswith("multihead_attn"):
            continue
        heads, rows, columns = array.shape
        values = struct.unpack(f"<{heads * rows * columns}f", array.data)
        row = lambda h, q: values[(h * rows + q) * columns:(h * rows + q + 1) * columns]
        layers.append([thousandths(row(h, q) for q in range(rows)) for h in range(heads)])
    layer = max(0, len(layers) - 2)
    sharpness = [sum(max(row) for row in head) for head in layers[layer]]
    output = [str(symbol) for symbol in shown["output"]]
    return {
        "name": "Copy and reverse: the decoder looks at the source",
        "about": f"The model reads {SOURCE} and writes it, and then backwards. A row is named by the symbol that the decoder has "
                 "just written; it looks for the next one.",
        "same": False, "rows": ["start", *output], "columns": ["start", *SOURCE.split(), "end"], "layers": layers,
        "start": {"layer": layer, "head": sharpness.index(max(sharpness)), "query": 2},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="folder of the programs")
    parser.add_argument("page", type=Path)
    parser.add_argument("--lm", type=Path, default=Path("runs/lm"), help="a model of lm train")
    parser.add_argument("--copy-reverse", type=Path, default=Path("runs/copy-reverse"), help="a model of copy_reverse train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        models = [language_model(arguments.programs / "lm", arguments.lm, folder),
                  cross_attention(arguments.programs / "copy_reverse", arguments.copy_reverse, folder)]
    scores = run(arguments.programs / "explain", "attention", "--no-figures")
    data = {"models": models, "words": scores["words"], "scores": scores["raw_scores"]}
    page = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    arguments.page.write_text(page.replace("@DATA@", text), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        sys.exit(f"heed_interactive.py: {error}")
