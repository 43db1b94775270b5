#!/usr/bin/env python3
"""Compares this engine's tokenizer with the `tokenizers` package on the same texts.

Usage: run.py TOKENIZER_JSON [--binary build/release/deepinfer] [--megabytes 4]

Needs `pip install tokenizers`. The texts are made up from the words of the tokenizer's own
vocabulary, frequent words more often, so that nothing has to be downloaded. Prints one JSON line
for each measurement (one thread on both sides) and checks that both give equally many ids.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def words_of(tokenizer, is_word):
    """The vocabulary's words that satisfy `is_word`, lowest id (most frequent) first."""
    ids = range(tokenizer.get_vocab_size(with_added_tokens=False))
    return [word for word in (tokenizer.decode([i]) for i in ids) if is_word(word)]


def word_source(words, rng):
    """Draws words with Zipf-like frequencies."""
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(words))))
    return lambda count: rng.choices(words, cum_weights=weights, k=count)


def english(tokenizer, size, rng):
    is_word = lambda w: w[:1] == " " and w[1:].isascii() and w[1:].isalpha() and w.islower()
    draw = word_source(words_of(tokenizer, is_word), rng)
    out = []
    while size > 0:
        sentence = "".join(draw(rng.randint(5, 25))).strip().capitalize()
        sentence += rng.choice([". ", ". ", "? ", ".\n\n", f", {rng.randint(1, 99999)}. "])
        out.append(sentence)
        size -= len(sentence)
    return "".join(out)


def chinese(tokenizer, size, rng):
    is_word = lambda w: w != "" and all("\u4e00" <= c <= "\u9fa5" for c in w)
    draw = word_source(words_of(tokenizer, is_word), rng)
    out = []
    while size > 0:
        sentence = "".join(draw(rng.randint(4, 15))) + rng.choice("，，，。。？！：；\n")
        out.append(sentence)
        size -= len(sentence.encode())
    return "".join(out)


def peer_rate(encode, text, limit):
    """Bytes a second and the result of `encode()`, best of a few runs within `limit` seconds."""
    best, result, start = float("inf"), None, time.perf_counter()
    while time.perf_counter() - start < limit or result is None:
        begin = time.perf_counter()
        result = encode()
        best = min(best, time.perf_counter() - begin)
    return len(text.encode()) / best, result


def peer_measurements(peer, text):
    """The whole text at once, and in documents, which suit the package's word cache better."""
    rate, encoding = peer_rate(lambda: peer.encode(text), text, 3)
    yield "whole", rate, len(encoding.ids)
    documents = [text[i : i + 2000] for i in range(0, len(text), 2000)]
    rate, encodings = peer_rate(lambda: peer.encode_batch_fast(documents), text, 3)
    yield "documents of 2,000 characters", rate, sum(len(e.ids) for e in encodings)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer")
    parser.add_argument("--binary", default="build/release/deepinfer")
    parser.add_argument("--megabytes", type=float, default=4)
    args = parser.parse_args()

    rng = random.Random(1)
    peer = tokenizers.Tokenizer.from_file(args.tokenizer)
    size = int(args.megabytes * 1e6)
    texts = {"english.txt": english(peer, size, rng), "chinese.txt": chinese(peer, size, rng)}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in texts.items():
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        command = [args.binary, "bench", "tokenizer", "--tokenizer", args.tokenizer]
        output = subprocess.run(command + paths, check=True, capture_output=True, text=True).stdout

    ours = [json.loads(line) for line in output.splitlines()]
    for line in ours:
        print(json.dumps({"engine": "deepinfer", **line}, ensure_ascii=False))
    for line in ours:
        if line["name"] != "encode" or line["shape"] not in texts:
            continue
        for way, rate, ids in peer_measurements(peer, texts[line["shape"]]):
            print(json.dumps({
                "engine": f"tokenizers {tokenizers.__version__}",
                "name": "encode",
                "shape": f"{line['shape']}, {way}",
                "rows": ids,
                "gbps": rate / 1e9,
                "speedup": line["gbps"] * 1e9 / rate,
            }))
            assert way != "whole" or ids == line["rows"], "the two tokenizers disagree"


if __name__ == "__main__":
    main()
