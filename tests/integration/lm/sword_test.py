"""python/heed_sword.py, on a module of its own making."""
import pathlib
import struct
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
import heed_sword  # noqa: E402

CONF = "[tiny]\nDataPath=./modules/tiny/\nModDrv=zText\nSourceType=OSIS\nCompressType=ZIP\n"
# In canonical order: two places before the testament, one before each book and chapter.
ENTRIES = [
    "", "",
    '<div canonical="true" osisID="Gen" sID="a" type="book"/> <milestone n="Genesis" type="x-usfm-h"/>',
    '<chapter n="1" osisID="Gen.1" sID="Gen.1"/> ',
    'In the <w lemma="strong:H7225">beginning</w><note placement="foot">or <w>at</w> first</note>.',
    "",
    '\u00b6 And the <divineName>\\nd LORD</divineName> said &amp; did.  <chapter eID="Gen.1"/>',
    '<chapter n="2" osisID="Gen.2" sID="Gen.2"/>',
    '<title>A heading</title>Thus it was. <div canonical="true" eID="a" osisID="Gen" type="book"/>',
]


class Sword(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name) / "sword"
        self.data = self.root / "modules" / "tiny"
        self.data.mkdir(parents=True)
        (self.root / "mods.d").mkdir()
        (self.root / "mods.d" / "tiny.conf").write_text(CONF)
        texts = [entry.encode() for entry in ENTRIES]
        block = b"".join(texts)
        stored = zlib.compress(block)
        places, at = b"", 0
        for text in texts:
            places += struct.pack("<IIH", 0, at if text else 0, len(text))
            at += len(text)
        self.put("ot.bzz", stored)
        self.put("ot.bzv", places)
        self.put("ot.bzs", struct.pack("<III", 0, len(stored), len(block)))

    def tearDown(self):
        self.folder.cleanup()

    def put(self, name, content):
        (self.data / name).write_bytes(content)

    def refused(self, *words):
        with self.assertRaises(heed_sword.FormatError) as caught:
            heed_sword.read_books(self.root)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_books_chapters_and_verses(self):
        self.assertEqual(heed_sword.read_books(self.root), [
            ("Genesis", [(1, [(1, "In the beginning ."), (3, "And the LORD said & did.")]),
                         (2, [(1, "Thus it was.")])])])

    def test_writes_a_file_for_each_book(self):
        out = self.root.parent / "out"
        self.assertEqual(heed_sword.main([str(self.root), str(out)]), 0)
        self.assertEqual([file.name for file in out.iterdir()], ["01 Genesis.txt"])
        self.assertEqual((out / "01 Genesis.txt").read_text(),
                         "Genesis 1\n1 In the beginning .\n3 And the LORD said & did.\n\nGenesis 2\n1 Thus it was.\n")

    def test_a_damaged_module_is_refused(self):
        good = {name: (self.data / name).read_bytes() for name in ("ot.bzs", "ot.bzv", "ot.bzz")}
        first, stored, size = struct.unpack("<III", good["ot.bzs"])
        for name, content, word in [
                ("ot.bzs", good["ot.bzs"][:-1], "cut short"),
                ("ot.bzv", good["ot.bzv"] + b"x", "cut short"),
                ("ot.bzs", struct.pack("<III", first, stored + 1, size), "not in its"),
                ("ot.bzs", struct.pack("<III", first, stored, size + 1), "expected"),
                ("ot.bzs", struct.pack("<III", first, stored, 0xffffffff), "not in its"),
                ("ot.bzz", b"x" * stored, "block"),
                ("ot.bzv", struct.pack("<IIH", 9, 0, 5), "not in block"),
                ("ot.bzv", struct.pack("<IIH", 0, size, 5), "not in block")]:
            with self.subTest(name=name, word=word):
                self.put(name, content)
                self.refused(name[:2], word)
                self.put(name, good[name])

    def test_other_modules_are_refused(self):
        conf = self.root / "mods.d" / "tiny.conf"
        for old, new, word in [("zText", "RawText", "ModDrv"), ("ZIP", "LZSS", "CompressType"),
                               ("./modules/tiny/", "../", "is not in")]:
            conf.write_text(CONF.replace(old, new))
            self.refused(word)
        self.assertEqual(heed_sword.main([str(self.root.parent / "none"), "out"]), 3)
        self.assertEqual(heed_sword.main([]), 2)


if __name__ == "__main__":
    unittest.main()
