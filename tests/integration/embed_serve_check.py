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
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

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


def page_of(chromium, folder, url, question):
    address = f"{url}/#question={urllib.parse.quote(question)}"
    # Time goes on in steps of the page's own, as it asks the server and draws.
    result = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                             "--virtual-time-budget=10000", "--dump-dom", address],
                            capture_output=True, text=True, timeout=120, check=True)
    return result.stdout


def check(url, chromium, folder):
    with urllib.request.urlopen(url + "/api/search", json.dumps({"question": "ship stars"}).encode()) as answer:
        found = json.load(answer)["results"][0]["found"]
    assert len(found) == 2, found
    dom = page_of(chromium, folder, url, "ship stars")
    assert "<title>heed: search by meaning</title>" in dom and "<img" not in dom, "a text became markup"
    items = re.findall(r'<li><div>(.*?)</div><div class="place soft small"><span>(.*?)</span><span class="score">(.*?)</span>', dom)
    shown = [(html.unescape(text), place, score) for text, place, score in items]
    assert shown == [(f["text"], f"{f['file']}:{f['line']}", f"{f['score']:.3f}") for f in found], shown
    assert "texts: 2 paragraphs in 1 files, by model" in dom
    assert "text 1 has 2500 characters; at most 2000 are taken" in page_of(chromium, folder, url, "x" * 2500)


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("SKIPPED: Chromium is not installed (Debian's package is chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, texts = prepare(sys.argv[2], folder)
        server = subprocess.Popen([sys.argv[1], "serve", "--model", model, texts, "--port", "0", "--json"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            check(json.loads(server.stdout.readline())["url"], chromium, folder)
        finally:
            server.terminate()
            code = server.wait(timeout=60)
    assert code == 143, code


if __name__ == "__main__":
    main()
