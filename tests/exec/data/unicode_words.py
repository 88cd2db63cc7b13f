#!/usr/bin/python3
"""Writes unicode_kinds.txt and unicode_words.json: what GPT-2's pattern makes of every code point and of texts of mixed
ones, by Debian's python3-regex. tests/exec/data/bpe_test.cc holds our cutting to them."""
import json
import pathlib
import random

import regex

HERE = pathlib.Path(__file__).parent
PATTERN = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")
KINDS = [("L", regex.compile(r"\p{L}")), ("N", regex.compile(r"\p{N}")), ("S", regex.compile(r"\s"))]


def kind(point):
    character = chr(point)
    return next((name for name, pattern in KINDS if pattern.fullmatch(character)), "O")


points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
runs, last = [], None
for point in points:
    here = kind(point)
    if here != last:
        runs.append(f"{point:X} {here}")
        last = here
(HERE / "unicode_kinds.txt").write_text("\n".join(runs) + "\n")

draw = random.Random(1)
some = {name: [p for p in points if p < 0x30000 and kind(p) == name] for name in "LNSO"}
texts = []
for _ in range(300):
    text = ""
    for _ in range(draw.randint(1, 24)):
        pick = draw.random()
        if pick < 0.25:
            text += " " * draw.randint(1, 3)
        elif pick < 0.35:
            text += draw.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'"])
        elif pick < 0.65:
            text += draw.choice("aZ09.,!\n\t\u00b2\u00bd\u2167\u0e2a\u0e31\u0995\u09cd\u202f\u00a0\u3000\u0301")
        else:
            text += chr(draw.choice(some[draw.choice("LNSO")]))
    texts.append(PATTERN.findall(text))
(HERE / "unicode_words.json").write_text(json.dumps(texts, ensure_ascii=True) + "\n")
