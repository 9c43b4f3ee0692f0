#!/usr/bin/env python3
"""heed's tokenizers beside the Python package `tokenizers`: the same ids, the same decoded texts, and the ratio of
their speeds on one thread, in turn.

    pip install tokenizers
    bench/peers/compare_tokenizers.py build/release/bin/tokenize tokenizer.json…

Texts: what gettext's catalogues under /usr/share/locale say, in all their languages, pages of the manual, and lines
made of Unicode's characters and of what the rules of tokenizers look at. Exits with 1 if anything differs."""
import argparse
import gzip
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def messages(path):
    """The translations in a catalogue of gettext."""
    data = path.read_bytes()
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, _, table = struct.unpack_from(order + "3I", data, 8)
    for i in range(count):
        length, offset = struct.unpack_from(order + "2I", data, table + 8 * i)
        text = data[offset : offset + length].decode("utf-8", "ignore")
        yield from (part for part in text.split("\0") if part)


def catalogue_lines(count, rng):
    """Messages from as many languages as there are."""
    languages = {}
    for path in sorted(pathlib.Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
        languages.setdefault(path.parts[-3], []).extend(messages(path))
    names = sorted(languages)
    return [rng.choice(languages[names[i % len(names)]]) for i in range(count)] if names else []


def manual_lines(count, rng):
    lines = []
    for path in rng.sample(pages := sorted(pathlib.Path("/usr/share/man").glob("man*/*.gz")), min(300, len(pages))):
        text = gzip.open(path).read().decode("utf-8", "replace").replace("\0", "")
        lines += [text[i : i + 400] for i in range(0, len(text), 400)]
    return rng.sample(lines, min(count, len(lines)))


PARTS = (["'s", "'T", "'re", "'VE", "'ll", "n't", "don't", "'ſ", "  ", "   ", "\t", "\n", "\r\n", "\n\n ", " \n", "\u00a0", "\u3000", "\u2028"]
         + ["0", "12", "345", "6789", "٣٤", "½", "Ⅷ", "²", "...", "—", "“", "¿", "_", "##", "$", "€", "`", "^", "~"]
         + ["é", "e\u0301", "ñ", "İ", "ß", "ﬁ", "Å", "Ω", "한", "한국", "漢字", "日本", "ไทย", "हिन्दी", "עִבְרִית", "العربية", "o\u0323\u0302", "\u0302\u0323"]
         + ["\u200d", "\u200b", "\ufeff", "\u00ad", "\ufffd", "\x01", "\x7f", "\x85", "👩‍👩‍👧", "🇩🇪", "👍🏽", "\u0303\u0303\u0303"]
         + ["[CLS]", "[MASK]", "[SEP]x", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<mask>", " <mask> ", "<|im_"]
         + ["Hello", "world", "tokenization", "a" * 30, "x" * 101, "antidisestablishmentarianism", "HTTP", "naïve", "straße"])


def made_lines(count, rng):
    assigned = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    lines = [assigned[i : i + 64] for i in range(0, len(assigned), 64)]  # every character
    lines = [("" if i % 2 else " ").join(line) for i, line in enumerate(lines)]
    rng.shuffle(lines)
    lines = lines[: count // 2]
    while len(lines) < count:
        block = rng.randrange(0, len(assigned) - 256)
        near = assigned[block : block + 256]
        lines.append("".join(rng.choice((rng.choice(PARTS), rng.choice(near), " ", rng.choice(PARTS))) for _ in range(rng.randrange(1, 40))))
    return lines


def texts(count):
    rng = random.Random(1)
    result = catalogue_lines(count // 2, rng) + manual_lines(count // 4, rng)
    result += made_lines(count - len(result), rng)
    return [text.replace("\0", "") for text in result]


def difference(text, ours, theirs):
    return f"  text    {text[:300]!r}\n  heed    {ours}\n  theirs  {theirs}"


def compare(program, path, lines, file):
    """How many lines have other ids, with and without marks, or another decoded text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    failures = 0
    for marks in (False, True):
        output = subprocess.run([program, path, file, "marks" if marks else "ids"], check=True, capture_output=True).stdout
        *ids, decoded = output.split(b"\n", len(lines))
        decoded = decoded.decode().split("\0")
        for text, ours, back in zip(lines, ids, decoded):
            theirs = tokenizer.encode(text, add_special_tokens=marks).ids
            ours = [int(i) for i in ours.split()]
            if ours != theirs:
                failures += 1
                if failures <= 5:
                    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
                    piece = lambda some: [tokenizer.id_to_token(i) for i in some[max(0, at - 2) : at + 4]]
                    print(difference(text, piece(ours), piece(theirs)))
            elif not marks and back != tokenizer.decode(theirs):
                failures += 1
                if failures <= 5:
                    print(difference(text, repr(back), repr(tokenizer.decode(theirs))))
    return failures


def speeds(program, path, lines, file, rounds):
    """Megabytes a second of heed, of theirs one line at a time, and of theirs as one batch: a list of each."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    size = sum(len(line.encode()) for line in lines) / 1e6
    heed = subprocess.Popen([program, path, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    results = ([], [], [])
    for _ in range(rounds + 1):
        heed.stdin.write("\n")
        heed.stdin.flush()
        results[0].append(size / float(heed.stdout.readline().split()[0]))
        begin = time.perf_counter()
        for line in lines:
            tokenizer.encode(line, add_special_tokens=False)
        results[1].append(size / (time.perf_counter() - begin))
        begin = time.perf_counter()
        tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        results[2].append(size / (time.perf_counter() - begin))
    heed.stdin.close()
    heed.wait()
    return [values[1:] for values in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizers", nargs="+", metavar="tokenizer.json")
    parser.add_argument("--lines", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5, help="0: only compare")
    options = parser.parse_args()
    lines = texts(options.lines)
    # Only real text is timed.
    real = lines[: options.lines // 2]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        all_file, real_file = (str(pathlib.Path(folder) / name) for name in ("all", "real"))
        pathlib.Path(all_file).write_bytes("".join(line + "\0" for line in lines).encode())
        pathlib.Path(real_file).write_bytes("".join(line + "\0" for line in real).encode())
        for path in options.tokenizers:
            differ = compare(options.program, path, lines, all_file)
            failures += differ
            print(f"{path}: {len(lines)} lines, {differ} differ", flush=True)
            if options.rounds:
                heed, single, batch = speeds(options.program, path, real, real_file, options.rounds)
                ratios = sorted(a / max(b, c) for a, b, c in zip(heed, single, batch))
                print(f"  heed {statistics.median(heed):.1f} MB/s, tokenizers {statistics.median(single):.1f}, as a batch "
                      f"{statistics.median(batch):.1f}; ratio to the better {statistics.median(ratios):.1f} "
                      f"({ratios[0]:.1f} to {ratios[-1]:.1f})", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
