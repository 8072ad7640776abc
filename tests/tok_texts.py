"""Odd texts, for tests/make-tok-golden.py and tests/sweep-tok.py: the same seed gives the same texts."""
import random
import unicodedata

ACUTE, DOT_BELOW, ZWJ = "\u0301", "\u0323", "\u200d"

# The cases of the project's list of complaints about other tokenizers, and what resembles them.
CASES = [
    "", " ", "   ", "\n", "a", "Kant\u014d", "l\u01dcshi", "Nguy\u1ec5n V\u0103n T\u1ed1", "e\u0301cole", "Stra\u00dfe \u0130stanbul \ufb01 \u00bd",
    "\ud55c\uad6d\uc5b4", "Kant\u014d na\u00efve Hello", "\U0001f4a9\U0001f4a9\U0001f4a9", "vote\u2661\u2661", "\U0001f642hello",
    "\uff21\uff22\uff23\uff11\uff12\uff13", "x\0y\ufffdz", "a\u200bb a\u00adb", "hello\u2028world\u0085x", "tab\there\u00a0nbsp\u3000ideo",
    "Cretaceous\u2013Paleogene", "\u5927\u5bb6\u597d\u6211\u662fGPT", "$100^2`~", "a" * 100, "a" * 101, "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 100,
    "e\u0301" * 101, "\u1100\u1161\u11a8", "\u30d5\u309a \u30af\u3099 \uff8c\uff9f", "a\u0302\u0301 u\u0308\u0304", "a\r\nb\r\n\r\nc\rd",
    "  two  spaces   three  ", "\u338f \u337f \u2122\x1eg \u00bd", "\x10\x1ea\x10b\x1e", "Hello World!", "<unk> a <s>b</s> <mask> <pad>",
    "[SEP] hi [MASK] </s> [sep] [UNK][CLS]", "how many", "about 100 people", "word " * 20,
    "\u202ertl\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627", "\u0915\u094d\u0937\u093f \u0b95\u0bcd\u0bb7\u0bc1",
    "\u0e01\u0e33\u0e49 \u0e99\u0e49\u0e33", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u00a9\u200d\u00a9\u0301 \U0001f1e9\U0001f1ea\U0001f1eb",
    "\u2581a\u2581\u2581b \u2581 c", "\u212b \u2126 \u1fef \u037e \u2260 \u00c5\u0323\u0307", "\u0600a\u0301 \u0600b", "\u1e9e\u01c5\u03a3\u03c3\u03c2 \u0390",
    "i\u0307 \u0130 I\u0131", "\u302e\u0301 a\u302e\u0323 \U0001d165\u0301\u0323", "\ufeffbom \ufeff", "\u3164\u115f\u1160",
    "#include <stdio.h> ##ing # ## a##b", "don't won't O'Neill", "e-mail me at first.last+tag@example.com, ok?", "https://example.org/a/b?c=d&e=%20f#frag",
]

WORDS = ("the of and to in is was for he on with as his at be this had not are but from or have an they which one you were all her she there would their will when who him been "
         "hello world about people number system water language playing walked unhappiness internationalization embed vectors tokenizer encode quickly running tables").split()

RANGES = [
    (0x20, 0x7F), (0, 0x20), (0x7F, 0x100), (0x100, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000),
    (0x2000, 0x2070), (0x20D0, 0x2100), (0x2100, 0x2460), (0x3000, 0x3100), (0x3400, 0xA000), (0xAC00, 0xD7A4), (0xF900, 0xFB50), (0xFB50, 0xFE70),
    (0xFF00, 0x10000), (0xE000, 0xF900), (0x10000, 0x20000), (0x1D100, 0x1D200), (0x1F1E6, 0x1F200), (0x1F300, 0x1FA00), (0x20000, 0x30000),
    (0xE0000, 0xE01F0),
]

COMMON = [
    " ", " ", " ", "  ", "\n", "\t", ".", ",", "-", "a", "b", "E", "\u0301", "\u0323", "\u200d", "\u00a9", "\u1100", "\u1161", "\u11a8", "\u0915", "\u094d",
    "\r\n", "\x10", "\u2581",
]


def character(rng):
    while True:
        lo, hi = rng.choice(RANGES)
        c = rng.randrange(lo, hi)
        if not 0xD800 <= c < 0xE000 and (unicodedata.category(chr(c)) != "Cn" or rng.random() < 0.02):
            return chr(c)


def text(rng, tokens=()):
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(CASES)
    if kind < 0.3:
        return "".join(rng.choice(CASES)[:rng.randrange(1, 40)] + rng.choice(["", " ", "-"]) for _ in range(rng.randrange(1, 4)))
    out = []
    for _ in range(rng.randrange(1, 14)):
        x = rng.random()
        if x < 0.3:
            w = rng.choice(WORDS)
            out.append(rng.choice([w, w.upper(), w.capitalize()]) + rng.choice(["", " ", " ", "s ", ", "]))
        elif x < 0.55:
            out.append(rng.choice(COMMON))
        elif x < 0.62 and tokens:
            out.append(rng.choice(["", " ", "  "]) + rng.choice(tokens) + rng.choice(["", " ", "\u00a0 "]))
        else:
            out.append(character(rng) + rng.choice(["", "", "", ACUTE, DOT_BELOW + ACUTE, " ", ZWJ]))
    return "".join(out)


def generator(seed):
    return random.Random(seed)
