#!/usr/bin/env python3
"""English and German to train on and to test with, from three packages of Debian: the catalogues of LibreOffice and GCC and
the dictionary of Ding (GPL-2; it and what is trained on it stay on your machine).

    bench/en_de.py FOLDER

fetches libreoffice-l10n-de, gcc-12-locales and trans-de-en (9 MB) with `apt-get download` unless FOLDER has them, and writes
catalogues.tsv and dictionary.tsv for training, valid.tsv and test.tsv. Test and validation are whole catalogues, of which no
source is in the training's files. Then:

    ./heed run translate train --preset translate --data FOLDER/catalogues.tsv,FOLDER/dictionary.tsv \\
        --valid FOLDER/valid.tsv --test FOLDER/test.tsv --out runs/en-de"""
import argparse
import pathlib
import re
import struct
import subprocess
import sys

PACKAGES = ["libreoffice-l10n-de", "gcc-12-locales", "trans-de-en"]
TEST = {"sd", "dba", "cpplib-12"}  # presentations, databases, the preprocessor
VALID = {"sfx", "wiz"}


def fetch(folder):
    """Where the packages' files are."""
    for package in PACKAGES:
        if not list(folder.glob(package + "_*.deb")):
            print(f"fetching {package}", flush=True)
            subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["dpkg-deb", "-x", next(folder.glob(package + "_*.deb")), folder / package], check=True)


def messages(path):
    """Pairs of a catalogue: of a plural the singular, of several lines each where there are as many."""
    data = path.read_bytes()
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, sources, targets = struct.unpack_from(order + "3I", data, 8)

    def text(table, i):
        length, offset = struct.unpack_from(order + "2I", data, table + 8 * i)
        return data[offset : offset + length].decode().split("\0")[0]

    for i in range(count):
        source, target = text(sources, i).split("\4")[-1], text(targets, i)
        lines = source.split("\n"), target.split("\n")
        if len(lines[0]) != len(lines[1]):
            lines = [source.replace("\n", " ")], [target.replace("\n", " ")]
        yield from ((a.strip(), b.strip()) for a, b in zip(*lines) if source)


def bare(text):
    """An entry of the dictionary without its remarks: {f}, [med.], <see>, (in brackets), /XY/."""
    return re.sub(r"\s+", " ", re.sub(r"\{[^}]*\}|\[[^\]]*\]|<[^>]*>|\([^)]*\)|/[A-Z. ]+/", " ", text)).strip()


def entries(path):
    """German :: English, with forms between | and words that mean the same between ;. Each form's first words are a pair."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or "::" not in line:
            continue
        german, english = (side.split("|") for side in line.split("::", 1))
        if len(german) == len(english):
            for de, en in zip(german, english):
                yield bare(en.split(";")[0]), bare(de.split(";")[0])


def write(path, pairs, without=frozenset()):
    """The pairs without repetitions and sources that stand elsewhere."""
    kept = {(a, b): None for a, b in pairs if a and b and a not in without and "\t" not in a + b and len(a + b) < 600}
    path.write_text("".join(f"{a}\t{b}\n" for a, b in kept), encoding="utf-8")
    print(f"{path}: {len(kept)} pairs")
    return {a for a, _ in kept}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    fetch(folder)
    catalogues = {path.stem: path for package in PACKAGES[:2] for path in sorted((folder / package).rglob("de/LC_MESSAGES/*.mo"))}
    if missing := (TEST | VALID) - set(catalogues):
        sys.exit(f"the packages do not hold the catalogues {', '.join(sorted(missing))}")

    def of(names):
        return [pair for name in sorted(names) for pair in messages(catalogues[name])]

    held = write(folder / "test.tsv", of(TEST))
    held |= write(folder / "valid.tsv", of(VALID), held)
    write(folder / "catalogues.tsv", of(set(catalogues) - TEST - VALID), held)
    write(folder / "dictionary.tsv", entries(folder / "trans-de-en/usr/share/trans/de-en"), held)


if __name__ == "__main__":
    main()
