#!/usr/bin/env python3
"""Write sq-unicode.inc: what Hugging Face tokenizers does with each code point.

usage: make-unicode.py > ../sq-unicode.inc          (needs: tokenizers==0.23.3; about a minute)

The crates under tokenizers follow different versions of Unicode (decompositions 9.0, categories older still, case and white space that of its Rust compiler,
graphemes that of unicode-segmentation), so no single version of the standard gives its answers. Every property is therefore observed: each code point is
put through the library, and what comes out is written down. tests/sweep-tok.py compares the finished tokenizer with the library over all code points.
"""
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tok_charsmap import charsmap

VERSION = "0.23.3"
LAST = 0x110000
POINTS = [c for c in range(LAST) if not 0xD800 <= c < 0xE000]
BLOCK = 128

SPACE, DROP, PUNCT, HAN, MN, MARK, WORD, LOWER_DOT = (1 << i for i in range(8))
GCB = ["other", "cr", "lf", "control", "extend", "zwj", "ri", "prepend", "spacing", "l", "v", "t", "lv", "lvt"]
GCB_SHIFT, PICT, INCB_SHIFT = 8, 1 << 12, 13
CONSONANT, INCB_EXTEND, LINKER = 1, 2, 3

ACUTE, LINK, ZWJ, COPYRIGHT, KA, WATCH = "\u0301", "\u094d", "\u200d", "\u00a9", "\u0915", "\u231a"
L, V, T = "\u1100", "\u1161", "\u11a8"


def observe_bert(flags, decomposition, lower):
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    han = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    strip = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    nfd, low, marks = normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()
    bert, white = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.WhitespaceSplit()
    dotted = []
    for c in POINTS:
        s = chr(c)
        words = [w for w, _ in bert.pre_tokenize_str("a" + s + "a")]
        flags[c] |= {1: 0, 2: SPACE, 3: PUNCT}[len(words)]
        assert (len(white.pre_tokenize_str("a" + s + "a")) == 2) == bool(flags[c] & SPACE)
        x = clean.normalize_str(s)
        assert x in ("", " ", s) and (x != " " or flags[c] & SPACE)
        flags[c] |= DROP if x == "" else 0
        if han.normalize_str(s) == " " + s + " ":
            flags[c] |= HAN
        if marks.normalize_str(s) == "":
            flags[c] |= MARK
        d = nfd.normalize_str(s)
        if 0xAC00 <= c < 0xD7A4:
            i = c - 0xAC00
            assert d == chr(0x1100 + i // 588) + chr(0x1161 + i % 588 // 28) + (chr(0x11A7 + i % 28) if i % 28 else "")
        elif d != s:
            decomposition[c] = d
        elif strip.normalize_str(s) == "":
            flags[c] |= MN
        x = low.normalize_str(s)
        lower[c] = ord(x[0]) - c
        if len(x) > 1:
            dotted.append((c, x))
            flags[c] |= LOWER_DOT
    assert dotted == [(0x130, "i\u0307")], dotted
    for c, d in decomposition.items():
        assert strip.normalize_str(chr(c)) == "".join(x for x in d if not flags[ord(x)] & MN)
        assert nfd.normalize_str(d) == d


def observe_regex(flags):
    t = Tokenizer(models.WordLevel({"X": 0, "Y": 1, "?": 2}, unk_token="?"))
    t.add_tokens([AddedToken("X", single_word=True, normalized=False), AddedToken("Y", lstrip=True, normalized=False)])
    for c in POINTS:
        s = chr(c)
        if s in "XY":
            flags[c] |= WORD
            continue
        if t.encode(s + "X").ids[-1] != 0:
            flags[c] |= WORD
        assert (t.encode(s + "Y").offsets[0] == (0, 2)) == bool(flags[c] & SPACE), hex(c)


def observe_classes(flags):
    """Canonical combining classes: c sorts after a mark of class k if and only if 0 < k < class of c."""
    import unicodedata
    nfd = normalizers.NFD()
    probes = {240: "\u0345"}
    for ucd in (unicodedata.ucd_3_2_0, unicodedata):  # for each class the oldest mark that the library knows
        for c in range(0x1E000):
            k = ucd.combining(chr(c))
            if k and k not in probes and nfd.normalize_str(probes[240] + chr(c)) == chr(c) + probes[240]:
                probes[k] = chr(c)
    ks = sorted(probes)
    for a, b in zip(ks, ks[1:]):
        assert nfd.normalize_str(probes[b] + probes[a]) == probes[a] + probes[b]
    classes = {}
    for c in POINTS:
        s = chr(c)
        if nfd.normalize_str(s) != s or nfd.normalize_str(s + probes[ks[0]]) == s + probes[ks[0]] and nfd.normalize_str(probes[240] + s) == probes[240] + s:
            if not any(s == p for p in probes.values()):
                continue
        below = sum(nfd.normalize_str(s + probes[k]) != s + probes[k] for k in ks)
        k = ks[below]
        assert all((nfd.normalize_str(probes[x] + s) != probes[x] + s) == (x > k) for x in ks if probes[x] != s), hex(c)
        classes[c] = k
    return classes


def observe_graphemes(flags):
    """Precompiled replaces a whole grapheme of fewer than 6 bytes whose first character it knows, and each known character of any other grapheme."""
    some, every = (normalizers.Precompiled(charsmap({x.encode(): b"X" for x in keys})) for keys in (("a", COPYRIGHT, KA, L, V, T), map(chr, POINTS[1:])))

    def joined(before, base):
        # Alone, base and the accent are one short grapheme, so that the accent vanishes; behind something that joins, it stays.
        return some.normalize_str(before + base + ACUTE).endswith(ACUTE)

    for c in POINTS:
        s = chr(c)
        gcb = "other"
        if c in (10, 13):
            gcb = "lf" if c == 10 else "cr"
        elif 0x1F1E6 <= c <= 0x1F1FF:
            gcb = "ri"
        elif 0xAC00 <= c < 0xD7A4:
            gcb = "lvt" if (c - 0xAC00) % 28 else "lv"
        elif some.normalize_str("a" + s) == "X":
            gcb = "zwj" if s == ZWJ else "extend" if joined(WATCH + s + ZWJ, COPYRIGHT) else "spacing"
        elif joined(s, "a"):
            gcb = "prepend"
        elif joined(s, L):
            gcb = "l"
        elif joined(s, V):
            gcb = "v"
        elif joined(s, T):
            gcb = "t"
        elif c == 0 or every.normalize_str(s + ACUTE + ACUTE) == "XX":
            gcb = "control"
        if gcb in ("lv", "lvt"):
            assert joined(s, V) == (gcb == "lv") and joined(s, T) and not joined(s, L)
        flags[c] |= GCB.index(gcb) << GCB_SHIFT
        if gcb != "prepend" and joined(s + ZWJ, COPYRIGHT):
            flags[c] |= PICT
        if gcb in ("other", "extend", "zwj", "spacing"):
            incb = CONSONANT if gcb == "other" and joined(s + LINK, KA) else 0
            if gcb != "other":
                incb = LINKER if joined(KA + s, KA) else INCB_EXTEND if joined(KA + LINK + s, KA) else 0
            flags[c] |= incb << INCB_SHIFT
    assert every.normalize_str("\r\n") == "X" and every.normalize_str("\n\r") == "XX"


def table(name, kind, values, per_line):
    print(f"static const {kind} {name}[{len(values)}] = {{")
    for i in range(0, len(values), per_line):
        print("    " + ",".join(values[i:i + per_line]) + ",")
    print("};\n")


def main():
    assert tokenizers.__version__ == VERSION, tokenizers.__version__
    flags, lower, decomposition = [0] * LAST, [0] * LAST, {}
    observe_bert(flags, decomposition, lower)
    observe_regex(flags)
    classes = observe_classes(flags)
    observe_graphemes(flags)
    pool, at = "", {}
    for d in sorted(set(decomposition.values()), key=lambda d: (-len(d), d)):
        if d not in pool:
            pool += d
        at[d] = pool.index(d)
    records, number, points = [], {}, []
    for c in range(LAST):
        d = decomposition.get(c, "")
        r = (flags[c], classes.get(c, 0), len(d), at.get(d, 0), lower[c])
        if r not in number:
            number[r] = len(records)
            records.append(r)
        points.append(number[r])
    blocks, stage1, stage2 = {}, [], []
    for i in range(0, LAST, BLOCK):
        b = tuple(points[i:i + BLOCK])
        if b not in blocks:
            blocks[b] = len(blocks)
            stage2.extend(b)
        stage1.append(blocks[b])
    print(f"// sq-unicode.inc - generated by tests/make-unicode.py from the behaviour of tokenizers {VERSION}; do not edit.")
    print("// Record of code point c: RECORDS[STAGE2[STAGE1[c / 128] * 128 + c % 128]]; decompositions are full and canonical, Hangul syllables excepted.\n")
    names = "SPACE DROP PUNCT HAN MN MARK WORD LOWER_DOT".split()
    print("enum : uint16_t {\n    " + ", ".join(f"UC_{n} = {1 << i}" for i, n in enumerate(names)) + ",")
    print(f"    UC_GCB_SHIFT = {GCB_SHIFT}, UC_GCB_MASK = 15, UC_PICT = {PICT}, UC_INCB_SHIFT = {INCB_SHIFT}, UC_INCB_MASK = 3,")
    print("    " + ", ".join(f"GCB_{n.upper()} = {i}" for i, n in enumerate(GCB[:9])) + ",")
    print("    " + ", ".join(f"GCB_{n.upper()} = {i + 9}" for i, n in enumerate(GCB[9:])) + ",")
    print(f"    INCB_CONSONANT = {CONSONANT}, INCB_EXTEND = {INCB_EXTEND}, INCB_LINKER = {LINKER},\n}};\n")
    table("STAGE1", "uint16_t" if max(stage1) > 255 else "uint8_t", [str(x) for x in stage1], 32)
    table("STAGE2", "uint16_t", [str(x) for x in stage2], 30)
    print("// flags, combining class, code points of the decomposition, where in DECOMPOSED it starts, difference to lower case")
    table("RECORDS", "unicode_record", ["{%d,%d,%d,%d,%d}" % r for r in records], 6)
    table("DECOMPOSED", "uint32_t", ["0x%X" % ord(x) for x in pool], 18)


main()
