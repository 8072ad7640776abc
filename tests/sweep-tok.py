#!/usr/bin/env python3
"""Compare sq's tokenizers with Hugging Face's: every code point in several contexts, then random texts.

usage: sweep-tok.py TEST_TOK [--models DIR] [--random N] [--seed N] [--only NAME]       (needs: tokenizers==0.23.3; some minutes)

TEST_TOK is the built tests/test-tok. The first runs use a vocabulary of every character by itself, so that ids show the normalized text. --models: folders
with tokenizer.json of real checkpoints, for the random texts. Prints the differences, and ends with 1 if there were any.
"""
import argparse
import array
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

import tok_texts

NONE = 0xFFFFFFFF


def wire(requests):
    out = bytearray()
    for a, b, max_len, plain in requests:
        x, y = a.encode(), (b or "").encode()
        flags = (1 if max_len != NONE else 0) | (2 if plain else 0) | (4 if b is not None else 0)
        out += array.array("I", [max_len, flags, len(x), len(y)]).tobytes() + x + y
    return bytes(out)


def ours(program, folder, requests):
    """Answers [(ids, types, spans)] of sq; None where it refuses."""
    run = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    data = wire(requests)
    feeder = threading.Thread(target=lambda: (run.stdin.write(data), run.stdin.close()))
    feeder.start()
    words = array.array("I")
    words.frombytes(run.stdout.read())
    feeder.join()
    if run.wait() != 0:
        sys.exit(f"{program} {folder} failed")
    answers, at = [], 0
    while at < len(words):
        status, n = words[at], words[at + 1]
        body = words[at + 2:at + 2 + 4 * n]
        answers.append(None if status else (list(body[0::4]), list(body[1::4]), list(zip(body[2::4], body[3::4]))))
        at += 2 + 4 * n
    return answers


def byte_spans(e, texts):
    """Encoding's character offsets as byte offsets in the text that each token came from."""
    maps = []
    for t in texts:
        m, n = [0], 0
        for c in t:
            n += len(c.encode())
            m.append(n)
        maps.append(m)
    out = []
    for (s, p), which in zip(e.offsets, e.sequence_ids):
        out.append((0, 0) if which is None else (maps[which][s], maps[which][p]))
    return out


def theirs(t, requests):
    answers = []
    for a, b, max_len, plain in requests:
        t.no_truncation()
        if max_len != NONE:
            t.enable_truncation(max_len)
        t.encode_special_tokens = plain
        e = t.encode(a) if b is None else t.encode(a, b)
        answers.append((e.ids, e.type_ids, byte_spans(e, [a] if b is None else [a, b])))
    return answers


def compare(name, program, folder, t, requests):
    got, expected = ours(program, folder, requests), theirs(t, requests)
    bad = [i for i in range(len(requests)) if got[i] != expected[i]]
    print(f"{name}: {len(requests)} texts, {len(bad)} differ", flush=True)
    for i in bad[:5]:
        print("  text", ascii(requests[i])[:400])
        for label, g, e in zip(("ids", "types", "spans"), got[i] or ((), (), ()), expected[i]):
            if g != e:
                print("   ", label, "sq", str(g)[:300], "\n    ", label, "HF", str(e)[:300])
    return len(bad)


def all_characters(**settings):
    """A WordPiece tokenizer with every character, at the beginning of words and inside."""
    vocab = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}
    for c in range(1, 0x110000):
        if not 0xD800 <= c < 0xE000:
            vocab[chr(c)] = len(vocab)
            vocab["##" + chr(c)] = len(vocab)
    t = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(**settings)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return t


def contexts(c):
    a, k, l = tok_texts.ACUTE, "\u0915\u094d", "\u1100"
    return [c, f"a{c}b", f" {c} ", f"A{c}{a}\u0323{c}b", f"{c}{a}x", f"\u00e9{c}\uac01{c}a{a}", f"{k}{c}\u0915{a}", f"\u231a{c}\u200d\u00a9{a} {l}{c}\u11a8{a}"]


def sweep_characters(program):
    bad = 0
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for settings in (dict(lowercase=True, strip_accents=None), dict(lowercase=False, strip_accents=None), dict(lowercase=True, strip_accents=False),
                     dict(lowercase=False, strip_accents=True), dict(lowercase=True, clean_text=False, handle_chinese_chars=False)):
        t = all_characters(**{**dict(clean_text=True, handle_chinese_chars=True, strip_accents=None), **settings})
        with tempfile.TemporaryDirectory() as folder:
            t.save(folder + "/tokenizer.json", pretty=False)
            # Several code points a text; a full stop between them keeps them apart.
            for context in range(6):
                requests = [(" . ".join(contexts(c)[context] for c in points[i:i + 16]), None, NONE, False) for i in range(0, len(points), 16)]
                bad += compare(f"{settings}, context {context}", program, folder, t, requests)
    return bad


def sweep_unigram(program, folder):
    t = Tokenizer.from_file(folder + "/tokenizer.json")
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    bad = 0
    for context in range(8):
        requests = [(contexts(c)[context], None, NONE, False) for c in points]
        bad += compare(f"{folder}, context {context}", program, folder, t, requests)
    return bad


def random_texts(program, folder, n, seed):
    t = Tokenizer.from_file(folder + "/tokenizer.json")
    t.no_padding()
    rng = tok_texts.generator(seed)
    tokens = [x.content for x in t.get_added_tokens_decoder().values()]
    is_unigram = isinstance(t.model, models.Unigram)
    requests = []
    for _ in range(n):
        b = tok_texts.text(rng, tokens) if rng.random() < 0.2 else None
        max_len = rng.randrange(6, 24) if rng.random() < 0.15 else NONE
        # Unigram: sq keeps special tokens out of plain text, HF finds them as pieces (format.md).
        requests.append((tok_texts.text(rng, tokens), b, max_len, not is_unigram and rng.random() < 0.1))
    return compare(f"{folder}, random texts, seed {seed}", program, folder, t, requests)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--models", default="")
    p.add_argument("--random", type=int, default=100000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    o = p.parse_args()
    bad = 0
    folders = sorted(os.path.dirname(f) for f in glob.glob(o.models + "/*/tokenizer.json")) if o.models else []
    for folder in folders:
        if o.only in folder:
            bad += random_texts(o.program, folder, o.random, o.seed)
            if json.load(open(folder + "/tokenizer.json"))["model"].get("type") == "Unigram" and not o.only.startswith("random"):
                bad += sweep_unigram(o.program, folder)
    if o.only in "characters":
        bad += sweep_characters(o.program)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
