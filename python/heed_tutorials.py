"""Weights trained in a notebook, under heed's names: the notebooks that the pages of docs/tutorials go through.

    python3 heed_tutorials.py copy_and_reverse weights.pt runs/notebook
    ./heed run copy_reverse decode --model runs/notebook "3 4 5"

weights.pt is what torch.save(model.state_dict(), "weights.pt") wrote; a safetensors file will do too, and then PyTorch
need not be installed. The folder gets model.safetensors and, of the two sequence-to-sequence models, a config.toml,
with which copy_reverse takes it for a model of its own. Needs Python 3.11, and heed_safetensors.py beside it.
"""
import argparse
import array
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import heed_safetensors
from heed_safetensors import Array

SINUSOIDS = "sinusoids"  # a buffer with the table of positions, which heed computes
# Of heed's weights, by the last part of the name: width D, feed-forward F, vocabulary V. A bias has the first size.
SHAPES = {
    "src_embedding": "V D", "tgt_embedding": "V D", "embedding": "V D", "generator": "V D",
    "in_proj": "3D D", "in_proj[q]": "D D", "in_proj[k]": "D D", "in_proj[v]": "D D", "out_proj": "D D",
    "linear1": "F D", "linear2": "D F", "norm": "D", "norm1": "D", "norm2": "D", "norm3": "D",
}
WITHOUT_BIAS = ("src_embedding", "tgt_embedding", "embedding")


@dataclass(frozen=True)
class Notebook:
    """How a notebook's model is called in heed."""

    names: str  # modules: the notebook's name, heed's, "no bias" where it has none; * is the number of a layer
    heads: int  # not to be seen in the weights
    settings: dict | None = None  # of copy_reverse, where it has this model


NOTEBOOKS = {
    "copy_and_reverse": Notebook("""
        encoder_embedding                            src_embedding
        decoder_embedding                            tgt_embedding
        pos_encoder.pe                               sinusoids
        pos_decoder.pe                               sinusoids
        encoder_layers.*.self_attn.W_q               encoder.layers.*.self_attn.in_proj[q]
        encoder_layers.*.self_attn.W_k               encoder.layers.*.self_attn.in_proj[k]
        encoder_layers.*.self_attn.W_v               encoder.layers.*.self_attn.in_proj[v]
        encoder_layers.*.self_attn.W_o               encoder.layers.*.self_attn.out_proj
        encoder_layers.*.feed_forward.linear1        encoder.layers.*.linear1
        encoder_layers.*.feed_forward.linear2        encoder.layers.*.linear2
        encoder_layers.*.norm1                       encoder.layers.*.norm1
        encoder_layers.*.norm2                       encoder.layers.*.norm2
        decoder_layers.*.self_attn.W_q               decoder.layers.*.self_attn.in_proj[q]
        decoder_layers.*.self_attn.W_k               decoder.layers.*.self_attn.in_proj[k]
        decoder_layers.*.self_attn.W_v               decoder.layers.*.self_attn.in_proj[v]
        decoder_layers.*.self_attn.W_o               decoder.layers.*.self_attn.out_proj
        decoder_layers.*.cross_attn.W_q              decoder.layers.*.multihead_attn.in_proj[q]
        decoder_layers.*.cross_attn.W_k              decoder.layers.*.multihead_attn.in_proj[k]
        decoder_layers.*.cross_attn.W_v              decoder.layers.*.multihead_attn.in_proj[v]
        decoder_layers.*.cross_attn.W_o              decoder.layers.*.multihead_attn.out_proj
        decoder_layers.*.feed_forward.linear1        decoder.layers.*.linear1
        decoder_layers.*.feed_forward.linear2        decoder.layers.*.linear2
        decoder_layers.*.norm1                       decoder.layers.*.norm1
        decoder_layers.*.norm2                       decoder.layers.*.norm2
        decoder_layers.*.norm3                       decoder.layers.*.norm3
        fc_out                                       generator
        """, heads=8, settings={
            "task": "copy_reverse", "min-length": 3, "max-length": 10, "norm": "post", "activation": "relu",
            "position": "sinusoidal", "max-positions": 512, "dropout": 0.1}),
    "encoder_block": Notebook("""
        self_attn.w_q                                self_attn.in_proj[q]
        self_attn.w_k                                self_attn.in_proj[k]
        self_attn.w_v                                self_attn.in_proj[v]
        self_attn.fc                                 self_attn.out_proj
        feed_forward.fc1                             linear1
        feed_forward.fc2                             linear2
        norm1                                        norm1
        norm2                                        norm2
        """, heads=8),
    "training_stability": Notebook("""
        attention.w_q                                self_attn.in_proj[q]                        no bias
        attention.w_k                                self_attn.in_proj[k]                        no bias
        attention.w_v                                self_attn.in_proj[v]                        no bias
        attention.w_o                                self_attn.out_proj
        feed_forward.linear1                         linear1
        feed_forward.linear2                         linear2
        norm1                                        norm1
        norm2                                        norm2
        """, heads=8),
    "paper": Notebook("""
        src_embedding                                src_embedding
        tgt_embedding                                tgt_embedding
        pos_encoding.pe                              sinusoids
        encoder.layers.*.self_attn.W_q               encoder.layers.*.self_attn.in_proj[q]
        encoder.layers.*.self_attn.W_k               encoder.layers.*.self_attn.in_proj[k]
        encoder.layers.*.self_attn.W_v               encoder.layers.*.self_attn.in_proj[v]
        encoder.layers.*.self_attn.W_o               encoder.layers.*.self_attn.out_proj
        encoder.layers.*.feed_forward.w_1            encoder.layers.*.linear1
        encoder.layers.*.feed_forward.w_2            encoder.layers.*.linear2
        encoder.layers.*.residual_1.norm             encoder.layers.*.norm1
        encoder.layers.*.residual_2.norm             encoder.layers.*.norm2
        encoder.norm                                 encoder.norm
        decoder.layers.*.self_attn.W_q               decoder.layers.*.self_attn.in_proj[q]
        decoder.layers.*.self_attn.W_k               decoder.layers.*.self_attn.in_proj[k]
        decoder.layers.*.self_attn.W_v               decoder.layers.*.self_attn.in_proj[v]
        decoder.layers.*.self_attn.W_o               decoder.layers.*.self_attn.out_proj
        decoder.layers.*.cross_attn.W_q              decoder.layers.*.multihead_attn.in_proj[q]
        decoder.layers.*.cross_attn.W_k              decoder.layers.*.multihead_attn.in_proj[k]
        decoder.layers.*.cross_attn.W_v              decoder.layers.*.multihead_attn.in_proj[v]
        decoder.layers.*.cross_attn.W_o              decoder.layers.*.multihead_attn.out_proj
        decoder.layers.*.feed_forward.w_1            decoder.layers.*.linear1
        decoder.layers.*.feed_forward.w_2            decoder.layers.*.linear2
        decoder.layers.*.residual_1.norm             decoder.layers.*.norm1
        decoder.layers.*.residual_2.norm             decoder.layers.*.norm2
        decoder.layers.*.residual_3.norm             decoder.layers.*.norm3
        decoder.norm                                 decoder.norm
        output_projection                            generator
        """, heads=4, settings={
            "task": "copy", "min-length": 10, "max-length": 10, "no-source-marks": True, "no-end-mark": True,
            "norm": "pre", "activation": "relu", "position": "sinusoidal", "max-positions": 512, "dropout": 0.1,
            "attention-dropout": 0.0}),
    "attention_step_by_step": Notebook("""
        embedding                                    embedding
        pos_encoding                                 sinusoids
        transformer_blocks.*.attention.in_proj       layers.layers.*.self_attn.in_proj
        transformer_blocks.*.attention.out_proj      layers.layers.*.self_attn.out_proj
        transformer_blocks.*.ff_network.0            layers.layers.*.linear1
        transformer_blocks.*.ff_network.3            layers.layers.*.linear2
        transformer_blocks.*.norm1                   layers.layers.*.norm1
        transformer_blocks.*.norm2                   layers.layers.*.norm2
        output_layer                                 generator
        """, heads=4),
    "attention_step_by_step_block": Notebook("""
        attention.in_proj                            self_attn.in_proj
        attention.out_proj                           self_attn.out_proj
        ff_network.0                                 linear1
        ff_network.3                                 linear2
        norm1                                        norm1
        norm2                                        norm2
        """, heads=8),
}


# ---- names


@dataclass(frozen=True)
class Entry:
    """A tensor of the notebook's: its name, the parameter of heed's that it is or is a part of, and its shape."""

    theirs: str
    heed: str
    shape: list[str]


def parameter(module, field):
    """torch.nn.MultiheadAttention joins in_proj_weight by another character than all others."""
    return f"{module}_{field}" if module.endswith("in_proj") else f"{module}.{field}"


def count_layers(prefix, names):
    return len({name[len(prefix):].partition(".")[0] for name in names if name.startswith(prefix)})


def entries(notebook, names):
    """The tensors that the notebook's model has with as many layers as `names` speak of, and its tables' names."""
    found, tables = [], []
    for line in notebook.names.strip().splitlines():
        theirs, heed, *no_bias = line.split(maxsplit=2)
        if heed == SINUSOIDS:
            tables.append(theirs)
            continue
        prefix, star, _ = theirs.partition("*")
        shape = SHAPES[heed.rpartition(".")[2]].split()
        for layer in range(max(1, count_layers(prefix, names)) if star else 1):
            place, module = theirs.replace("*", str(layer)), heed.replace("*", str(layer)).partition("[")[0]
            found.append(Entry(parameter(place, "weight"), parameter(module, "weight"), shape))
            if not no_bias and heed not in WITHOUT_BIAS:
                found.append(Entry(parameter(place, "bias"), parameter(module, "bias"), shape[:1]))
    return found, tables


# ---- checks: each gives the lines of what is wrong


def check_names(wanted, tables, arrays):
    known = {entry.theirs for entry in wanted} | set(tables)
    return ([f"missing: {entry.theirs}" for entry in wanted if entry.theirs not in arrays] +
            [f"unknown: {name}" for name in arrays if name not in known])


def measure(wanted, arrays):
    """{"D": width, …}, each by the first tensor that tells."""
    sizes = {}
    for entry in wanted:
        for letter, size in zip(entry.shape, arrays[entry.theirs].shape):
            sizes.setdefault(letter, size)
    return sizes | {"3D": 3 * sizes.get("D", 0)}


def check_shapes(wanted, arrays, sizes):
    wrong = []
    for entry in wanted:
        got, shape = arrays[entry.theirs], [sizes.get(letter, 0) for letter in entry.shape]
        if got.dtype != "F32" or got.shape != shape:
            wrong.append(f"{entry.theirs} is {got.dtype} {got.shape}; expected F32 {shape}")
    return wrong


def check_table(name, table, d_model):
    """A table of other values would make another model. 100 positions tell; f32 angles are off by 1e-5 there."""
    if table.dtype != "F32" or table.shape[-1:] != [d_model]:
        return [f"{name} is {table.dtype} {table.shape}; expected F32 [.., {d_model}]"]
    values = array.array("f", table.data[:100 * 4 * d_model])
    for i, value in enumerate(values):
        position, column = divmod(i, d_model)
        angle = position / 10000 ** (column // 2 * 2 / d_model)
        expected = math.cos(angle) if column % 2 else math.sin(angle)
        if not abs(value - expected) < 1e-4:
            return [f"{name} holds no sinusoidal positions: {value:g} at [{position}, {column}], not {expected:g}"]
    return []


# ---- files


def read_weights(path):
    """{name: Array} of a safetensors file, or of what torch.save(model.state_dict(), path) wrote."""
    if Path(path).suffix == ".safetensors":
        return heed_safetensors.read(path)
    try:
        import heed_torch
        import torch
    except ImportError as error:
        raise ValueError(f"{path} is no .safetensors file, and to read others PyTorch must be installed") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # of many types: whatever the bytes of another file lead to
        raise ValueError(f"{path} is no file of weights; write one with torch.save(model.state_dict(), …)") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f"{path} is no state_dict; write one with torch.save(model.state_dict(), …)")
    return {name: heed_torch.to_array(value.float()) for name, value in state.items()}


def rename(notebook, arrays):
    """(heed's arrays, sizes); ValueError with a line for each tensor that is missing, unknown or of another shape."""
    wanted, tables = entries(notebook, arrays)
    wrong = check_names(wanted, tables, arrays)
    if not wrong:
        sizes = measure(wanted, arrays)
        wrong = check_shapes(wanted, arrays, sizes) or [
            line for name in tables if name in arrays for line in check_table(name, arrays[name], sizes["D"])]
    if wrong:
        raise ValueError("these are not the notebook's weights\n  " + "\n  ".join(wrong))
    renamed = {}
    for entry in wanted:  # parts of one parameter follow one another: rows of q, of k, of v
        part = arrays[entry.theirs]
        before = renamed.get(entry.heed, Array("F32", [0], b""))
        shape = [before.shape[0] + part.shape[0], *part.shape[1:]]
        renamed[entry.heed] = Array("F32", shape, before.data + part.data)
    return renamed, sizes


def settings_of(notebook, sizes, heads, names):
    return notebook.settings | {
        "d-model": sizes["D"], "heads": heads, "d-ff": sizes["F"], "vocab": sizes["V"],
        "encoder-layers": count_layers("encoder.layers.", names),
        "decoder-layers": count_layers("decoder.layers.", names)}


def convert(name, weights, out, heads=None):
    """Writes OUT/model.safetensors, and config.toml where copy_reverse has the model. ValueError where the weights are
    not those of the notebook, with nothing written."""
    notebook, out = NOTEBOOKS[name], Path(out)
    heads = heads or notebook.heads
    if (out / "model.safetensors").exists():
        raise ValueError(f"{out} holds a model already")
    renamed, sizes = rename(notebook, read_weights(weights))
    if sizes["D"] % heads:
        raise ValueError(f"{heads} heads do not divide the width {sizes['D']}; name their number with --heads")
    out.mkdir(parents=True, exist_ok=True)
    if notebook.settings:
        settings = settings_of(notebook, sizes, heads, renamed)
        (out / "config.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    heed_safetensors.write(renamed, out / "model.safetensors")
    return renamed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", choices=NOTEBOOKS, help="the page of docs/tutorials, or the block of one")
    parser.add_argument("weights", help="state_dict, by torch.save or as safetensors")
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--heads", type=int, help="attention heads, if not as many as in the notebook")
    arguments = parser.parse_args()
    try:
        if arguments.heads is not None and arguments.heads < 1:
            raise ValueError(f"--heads {arguments.heads}: expected at least 1")
        renamed = convert(arguments.notebook, arguments.weights, arguments.out, arguments.heads)
    except (OSError, ValueError) as error:
        sys.exit(f"heed_tutorials: error: {error}")
    count = sum(math.prod(value.shape) for value in renamed.values())
    print(f"{arguments.out}: {len(renamed)} tensors, {count:,} parameters")


if __name__ == "__main__":
    main()
