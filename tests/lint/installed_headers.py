#!/usr/bin/env python3
"""Fails where an installed header includes a header of heed's that is not installed.

  installed_headers.py LIST INCLUDE     LIST names the installed headers below heed/, one a line; INCLUDE has them all
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<heed/([^>]+)>|"([^"]+)")', re.MULTILINE)


def main(list_file, include):
    installed = set(pathlib.Path(list_file).read_text().split())
    wrong = []
    for name in sorted(installed):
        text = (pathlib.Path(include) / "heed" / name).read_text()
        for match in INCLUDE.finditer(text):
            target = match[1] or match[2]
            if match[2] or target not in installed:
                line = text.count("\n", 0, match.start()) + 1
                wrong.append(f"{name}:{line} includes {target}, which is not installed")
    print("\n".join(wrong) or f"what {len(installed)} installed headers include is installed too")
    return 1 if wrong or len(installed) < 100 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
