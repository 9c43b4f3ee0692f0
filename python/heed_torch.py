"""heed's sequence-to-sequence Transformer in PyTorch: the same parameters, the same files, the same outputs.

    model = heed_torch.load("runs/copy_reverse")      # what `copy_reverse train` wrote
    heed_torch.save(model, "runs/from_torch")         # what `copy_reverse eval|decode|logits --model` reads
    python heed_torch.py logits --model DIR --data F.tsv --out L.safetensors       # as `copy_reverse logits`

Needs Python 3.11, torch, and heed_safetensors.py beside it.
"""
import argparse
import ctypes
import json
import math
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import heed_safetensors

PAD, START, END, FIRST_SYMBOL = 0, 1, 2, 3

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}
POSITIONS = ("sinusoidal", "learned", "alibi", "relative", "none")


@dataclass
class Config:
    """heed::nn::TransformerConfig, with its defaults."""

    source_vocabulary: int
    target_vocabulary: int
    d_model: int = 512
    heads: int = 8
    d_ff: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    norm: str = "post"
    activation: str = "relu"
    position: str = "sinusoidal"
    max_length: int = 512  # of learned positions only
    relative_limit: int = 32
    dropout: float = 0.1
    attention_dropout: float | None = None  # None: as dropout
    eps: float = 1e-5
    qkv_bias: bool = True
    out_bias: bool = True
    scale_embeddings: bool = True
    final_norm: bool | None = None  # None: for pre-norm only
    tie_generator: bool = False
    share_embeddings: bool = False

    def __post_init__(self):
        for what, value, choices in (("norm", self.norm, ("pre", "post")),
                                     ("activation", self.activation, ACTIVATIONS),
                                     ("position", self.position, POSITIONS)):
            if value not in choices:
                raise ValueError(f"{what} '{value}' is none of {', '.join(choices)}")
        if self.d_model % self.heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by heads = {self.heads}")


# ---- the model


def alibi_slopes(heads):
    """[heads]: those of the paper's code, for any number of heads."""
    power = 2 ** (heads.bit_length() - 1)
    exponents = torch.cat([torch.arange(1, power + 1), torch.arange(heads - power) + 0.5])
    return 2.0 ** (-8.0 * exponents / power)


def sinusoidal_table(length, d_model):
    """[length, d_model], f64: sin on even columns, cos on odd ones; any width."""
    column = torch.arange(d_model)
    rate = torch.exp(-math.log(10000.0) * (column // 2 * 2).double() / d_model)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.where(column % 2 == 1, angle.cos(), angle.sin())


def adapt(layer, config):
    """Gives a layer of torch.nn the parts that PyTorch's lack, and rates and biases of its own."""
    attentions = [layer.self_attn] + ([layer.multihead_attn] if hasattr(layer, "multihead_attn") else [])
    for attention in attentions:
        attention.dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        if not config.qkv_bias:
            attention.in_proj_bias = None
        if not config.out_bias:
            attention.out_proj.bias = None
    if config.position == "relative":
        layer.self_attn.relative_bias = nn.Parameter(torch.zeros(config.heads, 2 * config.relative_limit + 1))
    if config.activation == "swiglu":
        layer.linear_gate = nn.Linear(config.d_model, config.d_ff, bias=False)


def feed_forward(layer, x):
    hidden = layer.activation(layer.linear_gate(x)) * layer.linear1(x)
    return layer.linear2(layer.dropout(hidden))


class EncoderLayer(nn.TransformerEncoderLayer):
    def _ff_block(self, x):
        return self.dropout2(feed_forward(self, x)) if hasattr(self, "linear_gate") else super()._ff_block(x)


class DecoderLayer(nn.TransformerDecoderLayer):
    def _ff_block(self, x):
        return self.dropout3(feed_forward(self, x)) if hasattr(self, "linear_gate") else super()._ff_block(x)


class Stack(nn.Module):
    """Layers and an optional norm, named as in torch.nn.TransformerEncoder and TransformerDecoder."""

    def __init__(self, layer_class, count, c):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(count):
            layer = layer_class(c.d_model, c.heads, c.d_ff, c.dropout, ACTIVATIONS[c.activation], c.eps,
                                batch_first=True, norm_first=c.norm == "pre")
            adapt(layer, c)
            self.layers.append(layer)
        final_norm = c.norm == "pre" if c.final_norm is None else c.final_norm
        self.norm = nn.LayerNorm(c.d_model, c.eps) if final_norm else None

    def finish(self, x):
        return x if self.norm is None else self.norm(x)


class PositionTable(nn.Module):
    """The learned table; sinusoids are not stored."""

    def __init__(self, max_length, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model).normal_(0, 0.02))


class Transformer(nn.Module):
    """state_dict() has the names and shapes of heed's model.safetensors."""

    def __init__(self, config):
        super().__init__()
        c = self.config = config
        self.settings = {}  # the rest of config.toml: task, lengths and so on
        self.src_embedding = nn.Embedding(c.source_vocabulary, c.d_model)
        self.tgt_embedding = nn.Embedding(c.target_vocabulary, c.d_model)
        if c.position == "learned":
            self.position = PositionTable(c.max_length, c.d_model)
        self.encoder = Stack(EncoderLayer, c.encoder_layers, c)
        self.decoder = Stack(DecoderLayer, c.decoder_layers, c)
        self.generator = nn.Linear(c.d_model, c.target_vocabulary)
        self.embedding_dropout = nn.Dropout(c.dropout)
        if c.share_embeddings:
            self.src_embedding.weight = self.tgt_embedding.weight
        if c.tie_generator:
            self.generator.weight = self.tgt_embedding.weight

    def embed(self, embedding, ids):
        x = embedding(ids)
        if self.config.scale_embeddings:
            x = x * math.sqrt(self.config.d_model)
        if self.config.position == "sinusoidal":
            x = x + sinusoidal_table(ids.shape[1], self.config.d_model).to(x)
        elif self.config.position == "learned":
            x = x + self.position.weight[: ids.shape[1]]
        return self.embedding_dropout(x)

    def self_mask(self, layer, x, causal):
        """What a layer adds to its scores: [length, length], or a bias for each sequence and head; None if nothing."""
        sequences, length, _ = x.shape
        heads, kind = self.config.heads, self.config.position
        mask = torch.triu(x.new_full((length, length), -math.inf), 1) if causal else None
        if kind not in ("alibi", "relative"):
            return mask
        place = torch.arange(length, device=x.device)
        distance = place[None, :] - place[:, None]  # key - query
        if kind == "alibi":
            bias = -alibi_slopes(heads).to(x)[:, None, None] * distance.abs()
        else:
            limit = self.config.relative_limit
            bias = layer.self_attn.relative_bias[:, distance.clamp(-limit, limit) + limit]
        bias = bias if mask is None else bias + mask
        return bias.repeat(sequences, 1, 1)

    def forward(self, source, target, source_lengths=None):
        """Ids [sequences, length], of which the first source_lengths[i] of a source count; logits [sequences,
        target length, vocabulary]. What follows a target's end changes nothing before it."""
        x, padding = self.embed(self.src_embedding, source), None
        if source_lengths is not None:
            hidden = torch.arange(source.shape[1], device=x.device) >= source_lengths[:, None]
            padding = torch.zeros_like(hidden, dtype=x.dtype).masked_fill_(hidden, -math.inf)
        for layer in self.encoder.layers:
            x = layer(x, self.self_mask(layer, x, causal=False), padding)
        memory = self.encoder.finish(x)
        y = self.embed(self.tgt_embedding, target)
        for layer in self.decoder.layers:
            y = layer(y, memory, self.self_mask(layer, y, causal=True), memory_key_padding_mask=padding)
        return self.generator(self.decoder.finish(y))


# ---- files


DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool}


def to_array(tensor):
    tensor = tensor.detach().cpu().contiguous()
    (dtype,) = (name for name, value in DTYPES.items() if value == tensor.dtype)
    data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
    return heed_safetensors.Array(dtype, list(tensor.shape), data)


def to_tensor(array):
    dtype = DTYPES[array.dtype]
    flat = torch.frombuffer(bytearray(array.data), dtype=dtype) if array.data else torch.empty(0, dtype=dtype)
    return flat.reshape(array.shape)


def load_safetensors(path):
    return {name: to_tensor(array) for name, array in heed_safetensors.read(path).items()}


def save_safetensors(tensors, path):
    heed_safetensors.write({name: to_array(tensor) for name, tensor in tensors.items()}, path)


# Settings of copy_reverse's config.toml that make the model; the layer counts stand apart below.
MODEL_SETTINGS = {"d-model": "d_model", "heads": "heads", "d-ff": "d_ff", "norm": "norm", "activation": "activation",
                  "position": "position", "max-positions": "max_length", "dropout": "dropout"}


def config_of(settings):
    missing = [key for key in (*MODEL_SETTINGS, "vocab") if key not in settings]
    if missing:
        raise ValueError(f"config.toml lacks {', '.join(missing)}")
    layers = settings.get("layers")
    return Config(settings["vocab"], settings["vocab"],
                  encoder_layers=settings.get("encoder-layers", layers),
                  decoder_layers=settings.get("decoder-layers", layers),
                  attention_dropout=settings.get("attention-dropout"),
                  **{name: settings[key] for key, name in MODEL_SETTINGS.items()})


def settings_of(config):
    c = config
    app_defaults = Config(c.source_vocabulary, c.source_vocabulary)
    for name in ("target_vocabulary", "relative_limit", "eps", "qkv_bias", "out_bias", "scale_embeddings", "final_norm",
                 "tie_generator", "share_embeddings"):
        if getattr(c, name) != getattr(app_defaults, name):
            raise ValueError(f"config.toml has no setting for {name} = {getattr(c, name)}; save the state_dict alone")
    settings = {key: getattr(c, name) for key, name in MODEL_SETTINGS.items()}
    settings |= {"vocab": c.source_vocabulary, "encoder-layers": c.encoder_layers, "decoder-layers": c.decoder_layers}
    if c.attention_dropout is not None:
        settings["attention-dropout"] = c.attention_dropout
    return settings


def load_weights(model, path):
    """Exactly the parameters of the model, in their shapes; tied ones must agree."""
    tensors = load_safetensors(path)
    model.load_state_dict(tensors, strict=True)
    for name, value in model.state_dict().items():
        if not torch.equal(value, tensors[name].to(value)):
            raise ValueError(f"{path}: {name} is tied to another tensor of the file, but differs from it")


def load(path):
    """The model of a folder that `copy_reverse train` or save() wrote, in evaluation mode."""
    path = Path(path)
    settings = tomllib.loads((path / "config.toml").read_text())
    model = Transformer(config_of(settings))
    model.settings = settings
    load_weights(model, path / "model.safetensors")
    return model.eval()


def save(model, path):
    """A folder that copy_reverse reads: model.safetensors and config.toml."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    settings = model.settings | settings_of(model.config)
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    (path / "config.toml").write_text("".join(lines))
    save_safetensors({name: value.float() for name, value in model.state_dict().items()}, path / "model.safetensors")


# ---- the command


def read_pairs(path, vocab):
    """[(source, target)] of a file with a pair a line, source<TAB>target, symbols separated by spaces."""
    pairs = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 2:
            raise ValueError(f"{path}:{number}: expected source<TAB>target")
        source, target = ([int(word) for word in field.split()] for field in fields)
        if not all(FIRST_SYMBOL <= symbol < vocab for symbol in source + target):
            raise ValueError(f"{path}:{number}: symbols are {FIRST_SYMBOL} to {vocab - 1}")
        pairs.append((source, target))
    return pairs


def pad(sequences):
    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sequences], batch_first=True, padding_value=PAD)


@torch.no_grad()
def logits(model, pairs, batch_size=64):
    """Teacher-forced logits of all pairs one below the other, [Σ(n + 1), vocabulary]; [Σn, …] without end marks."""
    rows = []
    marks = not model.settings.get("no-source-marks", False)
    end = not model.settings.get("no-end-mark", False)
    for first in range(0, len(pairs), batch_size):
        part = pairs[first:first + batch_size]
        sources = [[START, *source, END] if marks else source for source, _ in part]
        lengths = torch.tensor([len(source) for source in sources])
        targets = [[START, *target][:len(target) + end] for _, target in part]
        out = model(pad(sources), pad(targets), lengths)
        rows += [out[i, :len(target)] for i, target in enumerate(targets)]
    return torch.cat(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("logits", help="teacher-forced logits, as safetensors")
    for option, text in (("--model", "folder of the model"), ("--data", "pairs"), ("--out", "file to write")):
        command.add_argument(option, required=True, help=text)
    arguments = parser.parse_args()
    try:
        model = load(arguments.model)
        out = logits(model, read_pairs(arguments.data, model.config.source_vocabulary))
        save_safetensors({"logits": out.float()}, arguments.out)
        print(f"{arguments.out}: {list(out.shape)}")
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"heed_torch: error: {error}")


if __name__ == "__main__":
    main()
