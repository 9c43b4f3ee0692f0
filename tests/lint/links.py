#!/usr/bin/env python3
"""Fails where a link of a document leads to a file or a heading that is not there. A heading is named with its file, on the
same page too: the API reference finds no other."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^][]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
ELSEWHERE = re.compile(r"https?://|mailto:")


def headings(text):
    """What GitHub calls the headings of a document."""
    titles = re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(path, text):
    """The links of the document that lead nowhere."""
    for target in LINK.findall(CODE.sub("", text)):
        if ELSEWHERE.match(target):
            continue
        name, _, heading = target.partition("#")
        file = path.parent / name
        if not name or not file.exists() or heading and heading not in headings(file.read_text()):
            yield target


def main():
    readme = ROOT / "README.md"
    planted = "[a](LICENSE) [b](nowhere.md) `[c](c.md)` [d](#heed) [e](docs/threads.md#nowhere) [f](https://example.org)"
    if (found := list(broken(readme, planted))) != ["nowhere.md", "#heed", "docs/threads.md#nowhere"]:
        print(f"of the planted links this finds {found}")
        return 1
    documents = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    wrong = [f"{path.relative_to(ROOT)}: {target} leads nowhere"
             for path in documents for target in broken(path, path.read_text())]
    print("\n".join(wrong) if wrong else f"{len(documents)} documents, whose links lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
