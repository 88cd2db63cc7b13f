#!/usr/bin/python3
"""Writes wordpiece.json: a vocabulary, texts, and the tokens that BERT's own algorithm makes of them, written here from its
description (arXiv 1810.04805; google-research/bert, tokenization.py: basic tokens, then the longest piece first) with
Python's unicodedata. tests/exec/data/tokenizer_test.cc holds ours to them, from a tokenizer.json and from a vocab.txt.

Letters are lowered one by one, as the library that tokenizer.json belongs to does (a Greek sigma at a word's end stays
one), and code points that Python's Unicode does not know are left out."""
import json
import pathlib
import random
import unicodedata

HERE = pathlib.Path(__file__).parent
LONGEST = 100  # characters of a word


def is_control(c):
    return c not in "\t\n\r" and unicodedata.category(c).startswith("C")


def is_space(c):
    return c in " \t\n\r" or unicodedata.category(c) in ("Zs", "Zl", "Zp")


def is_mark(c):
    return 33 <= ord(c) <= 47 or 58 <= ord(c) <= 64 or 91 <= ord(c) <= 96 or 123 <= ord(c) <= 126 or unicodedata.category(c)[0] == "P"


def is_chinese(c):
    return any(low <= ord(c) <= high for low, high in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
                                                       (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))


def basic(text, lowers):
    kept = "".join(" " if is_space(c) else f" {c} " if is_chinese(c) else c for c in text
                   if c not in "\0\ufffd" and not is_control(c))
    if lowers:
        plain = "".join(c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
        kept = "".join(c.lower() for c in plain)
    words, word = [], ""
    for c in kept + " ":
        if c == " " or is_mark(c):
            words += [word] if word else []
            word = ""
            words += [c] if c != " " else []
        else:
            word += c
    return words


def pieces(word, vocabulary):
    if len(word) > LONGEST:
        return ["[UNK]"]
    out, begin = [], 0
    while begin < len(word):
        end = len(word)
        while end > begin and ("##" if begin else "") + word[begin:end] not in vocabulary:
            end -= 1
        if end == begin:
            return ["[UNK]"]
        out.append(("##" if begin else "") + word[begin:end])
        begin = end
    return out


def main():
    draw = random.Random(3)
    words = """the of and to in is a was he for it with as his on be at by i this had not are but from or have an they which one you were
        her all she there would their we him been has when who will more no if out so said what up its about into than them can only
        other new some could time these two may then do first any my now such like our over man me even most made after also did many
        before must through back years where much your way well down should because each just those people mr how too little state
        good very make world still own see men work long get here between both life being under never day same another know while
        last might us great old year off come since against go came right used take three train train un affable able ing ed er est ly
        ness tion re pre dis cafe uber naive resume strasse istanbul""".split()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789éüßñøłđıəαβγσςωабвгдяאבגदखกข한국ひらカタ"
    chinese = "中国人大学上海日本語漢字㐀豈𠀀𫠝"
    endings = ["##ing", "##ed", "##er", "##s", "##ly", "##able", "##aff", "##ness", "##tion", "##é", "##'", "##中", "##́"]
    vocabulary = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", *"«»…—‘’“”¿。、，！",
                  *letters, *("##" + c for c in letters), *chinese, *words, *endings]
    vocabulary = list(dict.fromkeys(vocabulary))
    numbers = {token: i for i, token in enumerate(vocabulary)}
    known = [chr(p) for p in range(1, 0x30000)
             if not 0xD800 <= p < 0xE000 and unicodedata.category(chr(p)) not in ("Cn", "Cs")]
    special = ["\u200b", "\u00ad", "\ufeff", "\x01", "\x7f", "\x85", "\u2028", "\u2029", "\u00a0", "\u3000", "\ufffd", "\u200d", "\u0301",
               "\u0130", "\u1e9e", "\ufb01", "Å", "\u212b", "e\u0301", "\r\n", "\t", "\x0b", "\x1c", "가", "\u1100\u1161", "\ue000", "Σ", "ς"]
    texts = ["Unaffable, the café's Übermensch—naïve résumés!", "ΟΔΟΣ İstanbul STRASSE straße", "中国人 in 上海。日本語カタ", "a" * 101 + " " + "a" * 100,
             "x" * 300, "", " \t\n ", "[CLSx] [ MASK ] ##ing #ing", "3.14e-10 $5 a+b=c ^_^ `code` |pipe| ~tilde~", "e\u0301 \u0301 a\u0301b", "한국 \u1112\u1161\u11ab"]
    for _ in range(600):
        text = ""
        for _ in range(draw.randint(1, 20)):
            pick = draw.random()
            if pick < 0.4:
                word = draw.choice(words)
                text += draw.choice([word, word.upper(), word.title()]) + draw.choice(["", "s", "ing", "ly", "'s", "-"])
            elif pick < 0.6:
                text += draw.choice(letters + letters.upper() + chinese)
            elif pick < 0.75:
                text += draw.choice(special)
            elif pick < 0.9:
                text += draw.choice(known)
            if draw.random() < 0.5:
                text += " "
        texts.append(text)
    # What stands between brackets is an added token, of which other tests are.
    texts = [text for text in texts if not any(token in text for token in ("[UNK]", "[MASK]", "[CLS]", "[SEP]", "[PAD]"))]
    cases = []
    for lowers in (True, False):
        for text in texts:
            tokens = [numbers[piece] for word in basic(text, lowers) for piece in pieces(word, numbers)]
            cases.append({"lowercase": lowers, "text": text, "tokens": tokens})
    unknown = sum(case["tokens"].count(2) for case in cases)
    print(len(cases), "texts,", sum(len(case["tokens"]) for case in cases), "tokens,", unknown, "unknown")
    (HERE / "wordpiece.json").write_text(json.dumps({"vocabulary": vocabulary, "cases": cases}, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
