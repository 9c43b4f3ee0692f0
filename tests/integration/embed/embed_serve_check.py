#!/usr/bin/env python3
"""The page of `embed serve` in headless Chromium: it asks the question of its address and shows what the server finds, and its
errors; texts stay texts. Exit code 77 where Chromium is not installed.

    embed_serve_check.py EMBED FIXTURE
"""
import html
import json
import pathlib
import re
import shutil
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import served_page  # noqa: E402

HOSTILE = "a <img src=x onerror=document.title='run'> ship."  # a text must stay a text


def prepare(fixture, folder):
    """A tiny encoder that knows a few words, and texts."""
    model, texts = folder / "model", folder / "texts"
    shutil.copytree(fixture, model)
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ship", "bread", "stars", "water"]
    words += [f"unused{i}" for i in range(size - len(words))]
    (model / "vocab.txt").write_text("\n".join(words[:size]) + "\n")
    texts.mkdir()
    (texts / "a.txt").write_text(f"{HOSTILE}\n\nbread water stars.\n")
    return model, texts


def check(url, page_of):
    with urllib.request.urlopen(url + "/api/search", json.dumps({"question": "ship stars"}).encode()) as answer:
        found = json.load(answer)["results"][0]["found"]
    assert len(found) == 2, found
    dom = page_of("question", "ship stars")
    assert "<title>heed: search by meaning</title>" in dom and "<img" not in dom, "a text became markup"
    items = re.findall(r'<li><div>(.*?)</div><div class="place soft small"><span>(.*?)</span><span class="score">(.*?)</span>', dom)
    shown = [(html.unescape(text), place, score) for text, place, score in items]
    assert shown == [(f["text"], f"{f['file']}:{f['line']}", f"{f['score']:.3f}") for f in found], shown
    assert "texts: 2 paragraphs in 1 files, by model" in dom
    assert "text 1 has 2500 characters; at most 2000 are taken" in page_of("question", "x" * 2500)


def main():
    program, fixture = sys.argv[1:]

    def command(folder):
        model, texts = prepare(fixture, folder)
        return [program, "serve", "--model", model, texts]

    served_page.check_server(command, check)


if __name__ == "__main__":
    main()
