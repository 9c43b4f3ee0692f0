#!/usr/bin/env python3
"""Which sources can be compiled together, by one file that includes them: headers are most of what a source compiles.

  together.py SOURCE…     prints N=SOURCE for each that is in a list with others, the Nth, as a list of CMake's

Sources of one list have no names of their own in common. Kernels that Highway compiles for several instruction sets, by
files that include themselves, stay alone.
"""
import pathlib
import re
import sys

MOST = 12  # sources in a list: of more, one change compiles too much again


def own_names(text):
    """Names that a source keeps to itself, or that would be seen by those after it: of unnamed namespaces, and macros."""
    names = set(re.findall(r"^#define (\w+)", text, re.MULTILINE)) - set(re.findall(r"^#undef (\w+)", text, re.MULTILINE))
    for part in re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, re.MULTILINE | re.DOTALL):
        part = re.sub(r"alignas\(.*\) ", "", part)
        names.update(map("_".join, re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+), (\w+)\)", part, re.MULTILINE)))
        for line in re.findall(r"^[^\s/}#].*", part, re.MULTILINE):
            found = (re.match(r"(?:struct|class|enum class|enum) (\w+)", line) or re.match(r"using (\w+) =", line) or
                     re.search(r"(\w+)\s*[(={[;]", line))
            if found and not re.match(r"(?:template|namespace|static_assert|(?:TYPED_)?TEST|using (?:namespace|\w+::))", line):
                names.add(found[1])
            if line.startswith("constexpr"):
                names.update(re.findall(r"(\w+) =", line))
    return names


def together(sources, most=MOST):
    """Lists of at most so many sources that can be in one file, of a dictionary of their texts."""
    lists, alone = [], []
    for source, text in sources.items():
        if "HWY_TARGET_INCLUDE" in text:
            alone.append([source])
            continue
        names = own_names(text)
        for others, group in lists:
            if len(group) < most and not others & names:
                others |= names
                group.append(source)
                break
        else:
            lists.append((names, [source]))
    return [group for _, group in lists] + alone


if __name__ == "__main__":
    groups = together({source: pathlib.Path(source).read_text() for source in sys.argv[1:]})
    print(";".join(f"{n}={source}" for n, group in enumerate(groups) for source in group if len(group) > 1), end="")
