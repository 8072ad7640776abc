#!/usr/bin/env python3
"""Write tests/data/tok: small tokenizers and what Hugging Face (or sentencepiece, where said) makes of odd texts.

usage: make-tok-golden.py OUT_DIR          (needs: tokenizers==0.23.3 sentencepiece==0.2.3 protobuf)

One folder per tokenizer: its files as a checkpoint has them, and golden.jsonl with a header line, then rows {a, b, ids, types, spans (bytes)}, with "max" where
it was cut to so many tokens (longest first) and "plain" where special tokens in the text were plain text.
"""
import json
import os
import random
import sys
import unicodedata
import zlib

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

import tok_texts
from tok_charsmap import charsmap

BAR = "\u2581"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    "ing", "ed", "er", "est", "un", "ness", "play", "walk", "happi", "table", "token", "izer", "embed", "vector", "world", "hello", "how", "many", "about",
    "people", "quick", "the", "of", "and", "to", "in", "is", "was", "word", "kant", "nguy", "strass", "istanbul", "na\u00efve", "caf\u00e9", "\u00fc",
    "\u00e9cole", "\u0430\u0431", "\u05e9\u05dc", "\u4f60\u597d",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
OTHERS = ("\u00e0\u00e9\u00e8\u00fc\u00f6\u00e4\u00df\u00f1\u0131\u0430\u0431\u0432\u03b1\u03b2\u03c3\u05d0\u05d1\u05e9\u05dc\u0627\u0628\u0645\u0915"
          "\u0937\u093f\u094d\u0e01\u0e49\u1100\u1161\u11a8\uac00\ud55c\u30ab\u30af\u30d5\u3099\u309a\u4eba\u5927\u5bb6\u597d\u6211\u662f\u8c48"
          "\U0001f642\u00a9\u0301\u0323\u0307\u302e\U0001d165\u200d")
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u00bf\u2013\u2014\u201c\u3002\uff0c"


def wordpiece_vocab(prefix, capitals=False):
    tokens = list(SPECIALS) + list(PUNCTUATION)
    words = PIECES + ([w.capitalize() for w in PIECES] if capitals else [])
    letters = LETTERS + (LETTERS.upper() if capitals else "") + OTHERS
    for t in list(letters) + words:
        tokens += [t, prefix + t]
    return {t: i for i, t in enumerate(dict.fromkeys(tokens))}


def bert_post(vocab):
    ids = [(t, vocab[t]) for t in ("[CLS]", "[SEP]")]
    return processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)


def bert_uncased():
    v = wordpiece_vocab("##")
    t = Tokenizer(models.WordPiece(v, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer, t.pre_tokenizer, t.post_processor = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), bert_post(v)
    t.add_special_tokens(SPECIALS)
    return t


def bert_cased():
    v = wordpiece_vocab("##", capitals=True)
    t = Tokenizer(models.WordPiece(v, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.BertProcessing(("[SEP]", v["[SEP]"]), ("[CLS]", v["[CLS]"]))
    t.add_special_tokens(SPECIALS[:4] + [AddedToken("[MASK]", lstrip=True, special=True)])
    t.add_tokens([AddedToken("hello world", normalized=True), AddedToken("tok", single_word=True, normalized=False),
                  AddedToken("<r>", rstrip=True, normalized=False), AddedToken("<lr>", lstrip=True, rstrip=True, single_word=True, normalized=False),
                  AddedToken("Hallo", normalized=True, single_word=True),
                  AddedToken("<r><r>", normalized=False), AddedToken("\u4f60\u597d", normalized=False)])
    return t


def bert_odd():
    v = wordpiece_vocab("@@")
    t = Tokenizer(models.WordPiece(v, unk_token="[UNK]", continuing_subword_prefix="@@", max_input_chars_per_word=9))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip(left=True, right=True)])
    t.pre_tokenizer, t.post_processor = pre_tokenizers.WhitespaceSplit(), bert_post(v)
    t.add_special_tokens(SPECIALS)
    t.add_tokens([AddedToken("Na\u00cfve \u00c9cole", normalized=True), AddedToken("WORLD", normalized=True, lstrip=True, rstrip=True)])
    return t


def bert_unclean():
    v = wordpiece_vocab("##")
    t = Tokenizer(models.WordPiece(v, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=True)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer()])
    return t


def small_charsmap():
    m = {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}
    m.update({chr(c): "" for c in list(range(1, 9)) + list(range(0xE, 0x20)) + [0x7F]})
    m.update({c: " " for c in "\t\n\r\u00a0\u2028\u200b\u3000\ufeff\ufffd\u0085"})
    m.update({"\u00bd": "1\u20442", "\u2122": "TM", "\ufb01": "fi",
              "\u338f": "kg", "\u337f": "\u682a\u5f0f\u4f1a\u793e", "\u212b": "\u00c5", BAR: " ", "\uff8c": "\u30d5", "\uff9f": "\u309a"})
    for base in "aeiou":
        for mark in "\u0301\u0302\u0308\u0300\u0304":
            m[base + mark] = unicodedata.normalize("NFC", base + mark)
    m.update({"a\u0302\u0301": "\u1ea5", "\u30d5\u309a": "\u30d7",
              "\u30af\u3099": "\u30b0", "\u1100\u1161": "\uac00", "\r\n": " ", "\u0600a": "z", "\u00a9\u0301": "", "\u05e9\u05dc": "q"})
    return charsmap({k.encode(): v.encode() for k, v in m.items()})


def unigram_pieces(seed, exact):
    rng = random.Random(seed)
    texts = [BAR, *LETTERS, *LETTERS.upper(), *OTHERS, *PUNCTUATION]
    texts += ["TM", "kg", "1", "\u2044", "\u682a", "\u5f0f", "\u30d7", "\u1ea5", "ab", "aa", "aaa", "aaaa", BAR + "a", BAR + BAR]
    for w in PIECES:
        texts += [w, BAR + w, w.capitalize(), BAR + w.capitalize()]
    out = []
    for t in dict.fromkeys(texts):
        score = -3 - 9 * rng.random() - (4 if len(t) == 1 else 0)
        out.append((t, float(round(score * 8) / 8) if exact else score))
    return out


def unigram(exact, seed):
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + unigram_pieces(seed, exact) + [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(pieces, 3, False))
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return t


def unigram_charsmap():
    t = unigram(False, 1)
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(small_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR, prepend_scheme="always")
    return t


def unigram_words():
    t = unigram(True, 2)
    t.normalizer = normalizers.Precompiled(small_charsmap())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=BAR, prepend_scheme="always")])
    t.add_tokens([AddedToken("hello", lstrip=True, normalized=False), AddedToken("\uff21b", normalized=True)])
    return t


def unigram_first():
    t = unigram(False, 3)
    t.normalizer = normalizers.Sequence([normalizers.Strip(left=True, right=True), normalizers.Replace(Regex(" {2,}"), BAR)])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR, prepend_scheme="first")
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    return t


def unigram_never():
    t = unigram(True, 4)
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR, prepend_scheme="never")
    return t


def sentencepiece_files(folder):
    """A model file as XLM-R has it; the tokenizer is what transformers' XLMRobertaConverter makes of it."""
    proto = sentencepiece_model_pb2.ModelProto()
    for piece, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        proto.pieces.add(piece=piece, score=0, type=kind)
    for piece, score in unigram_pieces(5, False):
        proto.pieces.add(piece=piece, score=score)
    proto.trainer_spec.model_type = 1
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id, proto.trainer_spec.pad_id = 0, 1, 2, -1
    proto.normalizer_spec.name = "user_defined"
    proto.normalizer_spec.precompiled_charsmap = small_charsmap()
    with open(folder + "/sentencepiece.bpe.model", "wb") as f:
        f.write(proto.SerializeToString())
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(vocab, 3, False))
    charsmap_step = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    t.normalizer = normalizers.Sequence([charsmap_step, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), BAR)])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR, prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    return t, sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def plain_rows(sp):
    """Special tokens as plain text are for sentencepiece to say: it never finds its control and unknown pieces in a text. ids shift by fairseq's one."""
    rows = []
    for a in ("Hello <unk> world", "a</s>b <s> play", "hello </s></s> walking <unk><unk>", "about<s>many <mask>", "kant<pad>"):
        p = sp.encode(a, return_type="proto")
        ids = [0] + [i.id + 1 if i.id else 3 for i in p.pieces] + [2]
        rows.append(dict(a=a, b=None, plain=True, ids=ids, types=[0] * len(ids), spans=[(0, 0)] + [(i.begin, i.end) for i in p.pieces] + [(0, 0)]))
    return rows


def byte_map(text):
    out, n = [0], 0
    for c in text:
        n += len(c.encode())
        out.append(n)
    return out


def row(t, a, b, most, plain):
    t.no_truncation()
    if most:
        t.enable_truncation(most)
    t.encode_special_tokens = plain
    e = t.encode(a) if b is None else t.encode(a, b)
    maps = [byte_map(a), byte_map(b or "")]
    spans = [(0, 0) if s is None else (maps[s][x], maps[s][y]) for (x, y), s in zip(e.offsets, e.sequence_ids)]
    r = dict(a=a, b=b, ids=e.ids, types=e.type_ids, spans=spans)
    if most:
        r["max"] = most
    if plain:
        r["plain"] = True
    return r


def rows_of(t, seed, n, plain):
    rng = tok_texts.generator(seed)
    tokens = [x.content for x in t.get_added_tokens_decoder().values()]
    rows = [row(t, a, None, 0, False) for a in tok_texts.CASES]
    rows.append(row(t, "how many", "about 100 people", 0, False))
    for a, b in (("a b c d e f g h", "a b c"), ("a b c", "a b c d e f g h"), ("a b c d e f", "a b c d e f"), ("a b c d e f g", "a b c d e f"), ("", "a b c d"), ("a b c d", "")):
        rows += [row(t, a, b, most, False) for most in (6, 7, 8, 9, 12)]
    for _ in range(n):
        b = tok_texts.text(rng, tokens) if rng.random() < 0.2 else None
        rows.append(row(t, tok_texts.text(rng, tokens), b, rng.randrange(5, 20) if rng.random() < 0.15 else 0, plain and rng.random() < 0.15))
    return rows


def characters(path):
    """CRC-32 of what normalizers make of each code point among others, by blocks of 4,096, and of how many words the pre-tokenizer finds."""
    only = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    steps = dict(clean=normalizers.BertNormalizer(**{**only, "clean_text": True}), han=normalizers.BertNormalizer(**{**only, "handle_chinese_chars": True}),
                 nfd=normalizers.NFD(),
                 strip=normalizers.BertNormalizer(**{**only, "strip_accents": True}), marks=normalizers.StripAccents(), lower=normalizers.Lowercase(),
                 charsmap=normalizers.Precompiled(small_charsmap()))
    bert = pre_tokenizers.BertPreTokenizer()
    with open(path, "w") as f:
        f.write(f"# tokenizers {tokenizers.__version__}, tests/make-tok-golden.py: step, first code point of the block, CRC-32\n")
        for name in [*steps, "words"]:
            for first in range(0, 0x110000, 4096):
                crc = 0
                for c in range(first, first + 4096):
                    if 0xD800 <= c < 0xE000 or (c >= 0x30000 and c % 64):  # what lies above is unassigned, private, or tags
                        continue
                    c = chr(c)
                    text = f"a{c}a" if name == "words" else f"a{c}b{c}\u0301\u0323 {c}\u00a9\u0301{c}\u200d\u00a9\u0301"
                    out = bytes([len(bert.pre_tokenize_str(text))]) if name == "words" else steps[name].normalize_str(text).encode()
                    crc = zlib.crc32(out, crc)
                f.write(f"{name} {first:x} {crc:08x}\n")


def write(folder, t, seed, plain, more=(), files=True, n=90):
    os.makedirs(folder, exist_ok=True)
    rows = rows_of(t, seed, n, plain) + list(more)
    t.no_truncation()
    t.encode_special_tokens = False
    if files:
        t.save(folder + "/tokenizer.json", pretty=False)
    with open(folder + "/golden.jsonl", "w") as f:
        head = dict(reference="tokenizers " + tokenizers.__version__, generator="tests/make-tok-golden.py", seed=seed)
        f.write("\n".join(json.dumps(x, separators=(",", ":")) for x in [head] + rows) + "\n")


def main():
    out = sys.argv[1]
    assert tokenizers.__version__ == "0.23.3" and sentencepiece.__version__ == "0.2.3"
    write(out + "/bert-uncased", bert_uncased(), 11, True)
    write(out + "/bert-cased", bert_cased(), 12, True)
    write(out + "/bert-odd", bert_odd(), 13, False)
    write(out + "/bert-unclean", bert_unclean(), 14, False)
    write(out + "/unigram", unigram_charsmap(), 15, False)
    write(out + "/unigram-words", unigram_words(), 16, False)
    write(out + "/unigram-first", unigram_first(), 17, False)
    write(out + "/unigram-never", unigram_never(), 18, False)

    characters(out + "/characters.txt")

    folder = out + "/bert-vocab-txt"
    t = bert_uncased()
    t.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False, handle_chinese_chars=False)
    write(folder, t, 19, True, files=False)
    vocab = t.get_vocab()
    with open(folder + "/vocab.txt", "w") as f:
        f.write("".join(x + "\n" for x in sorted(vocab, key=vocab.get)))
    with open(folder + "/tokenizer_config.json", "w") as f:
        json.dump(dict(do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False, tokenizer_class="BertTokenizer", model_max_length=512), f)

    folder = out + "/sentencepiece"
    os.makedirs(folder, exist_ok=True)
    t, sp = sentencepiece_files(folder)
    write(folder, t, 20, False, plain_rows(sp), files=False)


main()
