"""safetensors files (https://huggingface.co/docs/safetensors) in plain Python: the tutorials' script, which reads and writes them,
works without any package, so also without PyPI's safetensors."""
import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path

ITEM_SIZE = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "BOOL": 1}


@dataclass
class Array:
    """A tensor as a file holds it: little-endian, the last axis contiguous."""

    dtype: str
    shape: list[int]
    data: bytes


def read(path):
    """{name: Array}; ValueError where the file is none of this format."""
    data = Path(path).read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size])
        arrays = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            array = Array(entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
            if len(array.data) != math.prod(array.shape) * ITEM_SIZE[array.dtype]:
                raise ValueError(f"{name} has {len(array.data)} bytes")
            arrays[name] = array
        return arrays
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no sound safetensors file: {error}") from error


def write(arrays, path):
    """Writes {name: Array}, whole or not at all, with the metadata that PyTorch's users expect."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    arrays = sorted(arrays.items(), key=lambda item: (-ITEM_SIZE[item[1].dtype], item[0]))  # so that all are aligned
    for name, array in arrays:
        begin, end = end, end + len(array.data)
        header[name] = {"dtype": array.dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = Path(f"{path}.part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in arrays:
            file.write(array.data)
    os.replace(part, path)
