#!/usr/bin/env python3
"""Words and their phonemes: a model that `translate train --preset pronounce` made, beside the network of the Python package
g2p-en, on the words of CMUdict that were kept for the test. Errors, and words a second in turn, on one thread each.

    pip install g2p-en
    bench/peers/compare_pronunciation.py build/release/bin/translate runs/translate cmudict.dict

g2p-en looks words up in CMUdict before it asks its network; here only the network answers, in the package's own code. It was
trained on CMUdict too, with a split of its own: words that are for the test here may be among those that it learned."""
import argparse
import collections
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import types

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

TEST_SHARE = 0.0988  # --preset pronounce's


def position_of(word):
    """Between 0 and 1, as heed::data::split_by_source() has it."""
    return (int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") >> 11) * 2.0**-53


def without_stress(phonemes):
    return tuple(p.rstrip("012") for p in phonemes)


def pronunciations(path):
    """{word: its listed pronunciations}"""
    words = collections.defaultdict(set)
    for line in open(path, encoding="utf-8"):
        word, *phonemes = line.split(" #")[0].split()
        if not line.startswith(";;;"):
            words[word.split("(")[0] if word.endswith(")") else word].add(without_stress(phonemes))
    return words


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def errors(words, answers):
    """The phoneme error, of the nearest pronunciation, and the word error, in percent."""
    wrong = distance = length = 0
    for word, known in words.items():
        count, size = min((edits(answers[word], right), -len(right)) for right in known)
        wrong, distance, length = wrong + (count > 0), distance + count, length - size
    return 100 * distance / length, 100 * wrong / len(words)


def g2p_en():
    """The network of the package. What the package takes from nltk, for looking words up, is not needed."""
    nltk = types.ModuleType("nltk")
    nltk.pos_tag, nltk.data = None, types.SimpleNamespace(find=lambda name: name)
    corpus, tokenize = types.ModuleType("nltk.corpus"), types.ModuleType("nltk.tokenize")
    corpus.cmudict = types.SimpleNamespace(dict=dict)
    tokenize.TweetTokenizer = lambda: types.SimpleNamespace(tokenize=str.split)
    sys.modules.update({"nltk": nltk, "nltk.corpus": corpus, "nltk.tokenize": tokenize, "inflect": types.ModuleType("inflect")})
    sys.modules["inflect"].engine = lambda: None
    from g2p_en import G2p

    return G2p()


def run_g2p_en(network, words):
    return {word: without_stress(network.predict(word)) for word in words}


def run_heed(options, words, *more):
    """One process for all words, its start and the reading of the model included."""
    command = [options.translate, "run", "--model", options.model, "--threads", "1", "--json", *more]
    done = subprocess.run(command, input="".join(word + "\n" for word in words), check=True, capture_output=True, text=True)
    lines = map(json.loads, done.stdout.splitlines())
    return {line["source"]: tuple(line["outputs"][0]["text"].split()) for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("translate")
    parser.add_argument("model")
    parser.add_argument("dictionary")
    parser.add_argument("--words", type=int, default=2000, help="test words that are timed (all are judged)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    words = {word: known for word, known in pronunciations(options.dictionary).items() if position_of(word) < TEST_SHARE}
    network = g2p_en()
    ways = {
        "heed, beam 5": lambda asked: run_heed(options, asked, "--beam", "5"),
        "heed, greedy": lambda asked: run_heed(options, asked, "--beam", "1"),
        "heed, greedy, one by one": lambda asked: run_heed(options, asked, "--beam", "1", "--batch-tokens", "1"),
        "g2p-en": lambda asked: run_g2p_en(network, asked),
    }
    timed = list(words)[: options.words]
    rates = collections.defaultdict(list)
    for _ in range(options.rounds):
        for name, answer in ways.items():
            begin = time.perf_counter()
            answer(timed)
            rates[name].append(len(timed) / (time.perf_counter() - begin))
    print(f"{len(words)} words")
    for name, answer in ways.items():
        phoneme, word = errors(words, answer(words))
        print(f"{name:26} phoneme error {phoneme:5.2f} %  word error {word:5.2f} %  {statistics.median(rates[name]):8.0f} words/s"
              f"  ({min(rates[name]):.0f} to {max(rates[name]):.0f})")


if __name__ == "__main__":
    main()
