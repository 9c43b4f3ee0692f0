#!/usr/bin/env python3
"""What makes the pack of a check."""
import ast
import json
import os
import sys
import unittest

import make_pack
from pretended import HERE, Pretended


class Packs(Pretended):
    def build(self):
        build = self.folder / "build"
        (build / "include" / "heed").mkdir(parents=True)
        (build / "include" / "heed" / "version.h").write_text('#define HEED_VERSION "1.2.3"\n')
        (build / "gpu_pack.txt").write_text("device\tgpu\nabout\t/bin/sleep\n")
        return build

    def test_a_pack_above_the_limit_is_refused(self):
        build = self.build()
        with self.assertRaisesRegex(SystemExit, "more than the 0 allowed"):
            make_pack.make(build, self.folder / "pack", 0.01)
        self.assertFalse((self.folder / "pack").exists())
        make_pack.make(build, self.folder / "pack", 20)
        self.assertEqual(json.loads((self.folder / "pack" / "pack.json").read_text())["version"], "1.2.3")
        self.assertTrue(os.access(self.folder / "pack" / "run", os.X_OK))
        self.assertTrue((self.folder / "pack" / "known_reports.txt").exists())

    def test_all_that_its_scripts_import_is_in_it(self):
        packed = {script.stem for script in make_pack.SCRIPTS}
        for script in (*make_pack.SCRIPTS, HERE / "run.py"):
            for node in ast.walk(ast.parse(script.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                    [node.module] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    beside = any((folder / f"{name}.py").exists() for folder in {path.parent for path in make_pack.SCRIPTS})
                    self.assertTrue(not beside or name in packed, f"{script.name} imports {name}")
        self.assertEqual(len(packed), len(make_pack.SCRIPTS))
        self.assertFalse(packed & set(getattr(sys, "stdlib_module_names", ())))


if __name__ == "__main__":
    unittest.main(buffer=True)
