#!/usr/bin/env python3
"""The page of `translate serve` in headless Chromium: it runs the texts of its address and shows what the server answers,
words and alternatives, and its errors; texts stay texts. Exit code 77 where Chromium is not installed.

    serve_check.py TRANSLATE
"""
import html
import json
import pathlib
import random
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import served_page  # noqa: E402

HOSTILE = "a<img src=x onerror=document.title='run'> b"  # a text must stay a text


def train(program, folder):
    """A model that writes letters as capitals."""
    draw = random.Random(1)
    sources = [" ".join(draw.choices("abcdefgh", k=draw.randint(2, 5))) for _ in range(2000)]
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{source.upper()}\n" for source in sources))
    subprocess.run([program, "train", "--data", folder / "pairs.tsv", "--out", folder / "m", "--source-tokenizer", "words",
                    "--target-tokenizer", "words", "--d-model", "32", "--heads", "2", "--layers", "1", "--d-ff", "64",
                    "--max-tokens", "32", "--batch-tokens", "256", "--epochs", "4", "--lr", "5e-3", "--warmup", "50",
                    "--dropout", "0"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "m"


def post(url, request):
    with urllib.request.urlopen(url + "/api/run", json.dumps(request).encode()) as answer:
        return json.load(answer)["results"]


def words(dom, name):
    lists = re.findall(rf'<ul class="words {name}"[^>]*>(.*?)</ul>', dom, re.S)
    return [[html.unescape(word) for word in re.findall(r"<li[^>]*>(.*?)</li>", items, re.S)] for items in lists]


def check(url, page_of):
    texts = ["c d", HOSTILE]
    dom = page_of("text", "\n".join(texts))
    want = post(url, {"text": texts, "best": 3, "beam": 5, "alignment": True})
    assert "<title>heed: text to text</title>" in dom and "<img" not in dom.replace("&lt;img", ""), "a text became markup"
    best = [result["outputs"][0]["alignment"] for result in want]
    assert best[0]["output"] == ["C", "D"] and best[1]["output"], best
    assert words(dom, "source") == [a["source"] for a in best], words(dom, "source")
    assert words(dom, "output") == [a["output"] for a in best], words(dom, "output")
    shown = [html.unescape(text) for text in re.findall(r'aria-pressed="(?:true|false)"><span>(.*?)</span>', dom, re.S)]
    assert shown == [o["text"] + ("" if o["finished"] else " …") for r in want for o in r["outputs"]], shown
    assert "m: " in dom and "words → words" in dom
    long = page_of("text", "x" * 2500)
    assert "text 1 has 2500 characters; at most 2000 are taken" in long


def main():
    served_page.check_server(lambda folder: [sys.argv[1], "serve", "--model", train(sys.argv[1], folder)], check)


if __name__ == "__main__":
    main()
