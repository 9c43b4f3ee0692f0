#!/usr/bin/env python3
"""The text of a Bible in a SWORD module, as Debian's sword-text-* packages have them, as plain files.

    python3 heed_sword.py ROOT OUT     ROOT holds mods.d and modules

writes a file for each book into OUT, "01 Genesis.txt": its chapters, separated by blank lines, each headed by
the book's name and the chapter's number, then a verse a line, "3 And God said, Let there be light: …". Without
footnotes, headings and other marks.

Read are modules with compressed blocks (ModDrv zText, CompressType ZIP, OSIS markup), whose format is SWORD's:
for each testament three files. .bzs: for each block three u32, where it begins in .bzz, its bytes there, and its
bytes once decompressed. .bzv: for each verse, in canonical order with a place before each testament, book and
chapter, block (u32), first byte in it (u32) and bytes (u16). .bzz: the blocks, by zlib. Book and chapter are read
from the markup; a verse's number is its place after the chapter's.
"""
import html
import pathlib
import re
import struct
import sys
import zlib

MOST_BYTES = 1 << 28  # of a testament


class FormatError(Exception):
    pass


def read_settings(root):
    """The settings of the one module under `root`."""
    files = sorted((root / "mods.d").glob("*.conf"))
    if len(files) != 1:
        raise FormatError(f"{root}/mods.d holds {len(files)} modules; expected one")
    settings = dict(re.findall(r"^(\w+)=(.*?)\s*$", files[0].read_text("utf-8", "replace"), re.MULTILINE))
    for key, expected in (("ModDrv", "zText"), ("CompressType", "ZIP"), ("SourceType", "OSIS")):
        if settings.get(key) != expected:
            raise FormatError(f"{files[0]}: {key} is {settings.get(key)}; expected {expected}")
    return settings


def read_entries(folder, testament):
    """The markup of each place of a testament, in order."""
    parts = [folder / f"{testament}.{kind}" for kind in ("bzs", "bzv", "bzz")]
    index, places, data = (part.read_bytes() for part in parts)
    if len(index) % 12 or len(places) % 10:
        raise FormatError(f"{parts[0]}, {parts[1]}: cut short")
    blocks, total = [], 0
    for first, stored, size in struct.iter_unpack("<III", index):
        total += size
        if first + stored > len(data) or total > MOST_BYTES:
            raise FormatError(f"{parts[2]}: a block of {stored} bytes at {first} is not in its {len(data)} bytes")
        unpacker = zlib.decompressobj()
        try:
            block = unpacker.decompress(data[first:first + stored], size)
        except zlib.error as error:
            raise FormatError(f"{parts[2]}: the block at {first}: {error}") from error
        if len(block) != size:
            raise FormatError(f"{parts[2]}: the block at {first} has {len(block)} bytes; expected {size}")
        blocks.append(block)
    for block, first, size in struct.iter_unpack("<IIH", places):
        if size == 0:
            yield ""
            continue
        if block >= len(blocks) or first + size > len(blocks[block]):
            raise FormatError(f"{parts[1]}: a verse of {size} bytes at {first} is not in block {block}")
        yield blocks[block][first:first + size].decode("utf-8", "replace")


def plain(markup):
    """The words of a verse."""
    for tag in ("note", "title"):
        markup = re.sub(rf"<{tag}\b[^>]*(?<!/)>.*?</{tag}>", " ", markup, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", "", markup))
    text = re.sub(r"\\\w+\*?|\u00b6", "", text)  # marks of the paper's typesetting that the module has left
    return re.sub(r"\s+", " ", text).strip()


def read_books(root):
    """Name and chapters of each book; a chapter is its number and its verses, each a number and its words."""
    folder = root / read_settings(root).get("DataPath", "")
    if root.resolve() not in folder.resolve().parents:
        raise FormatError(f"{folder} is not in {root}")
    books = []
    for testament in ("ot", "nt"):
        if not (folder / f"{testament}.bzs").exists():
            continue
        verse = 0
        for markup in read_entries(folder, testament):
            if re.search(r'<div [^>]*\bsID="[^"]*" type="book"/>', markup):
                name = re.search(r'<milestone n="([^"]*)" type="x-usfm-h"/>', markup)
                osis = re.search(r'osisID="([^"]*)"', markup)
                books.append((html.unescape((name or osis or [None, "?"])[1]), []))
            chapter = re.search(r'<chapter n="(\d+)" osisID="[^"]*" sID=', markup)
            verse += 1
            if chapter and books:
                books[-1][1].append((int(chapter[1]), []))
                verse = 0
            elif verse and books and books[-1][1] and (words := plain(markup)):
                books[-1][1][-1][1].append((verse, words))
    return books


def write_books(books, out):
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, chapters) in enumerate(books, 1):
        text = "\n\n".join("\n".join([f"{name} {chapter}", *(f"{verse} {words}" for verse, words in verses)])
                           for chapter, verses in chapters if verses)
        safe = re.sub(r"[^\w -]", "_", name)
        (out / f"{number:02} {safe}.txt").write_text(text + "\n", "utf-8")


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.splitlines()[2].strip(), file=sys.stderr)
        return 2
    try:
        books = read_books(pathlib.Path(arguments[0]))
        if not any(chapters for _, chapters in books):
            raise FormatError(f"{arguments[0]} holds no verse")
        write_books(books, pathlib.Path(arguments[1]))
    except (FormatError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
