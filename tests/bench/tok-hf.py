#!/usr/bin/env python3
"""Speed of Hugging Face tokenizers on one thread, for comparison with tests/bench/tok.cpp in the same run.

usage: tok-hf.py FOLDER [TEXTS...]          (needs: tokenizers; FOLDER with tokenizer.json)
"""
import json
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def read_texts(name):
    if not name.startswith("squad:"):
        return [t for t in open(name, encoding="utf-8", newline="\n").read().split("\n") if t]
    return [p["context"] for a in json.load(open(name[6:], encoding="utf-8"))["data"] for p in a["paragraphs"]]


def main():
    t = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
    t.no_truncation()
    t.no_padding()
    data = os.environ.get("SQ_SHARED", "../shared") + "/data/"
    names = sys.argv[2:] or [f"squad:{data}tasks/{n}.json" for n in ("qa_squad", "qa_xquad_de", "qa_xquad_zh")] + [data + "calibrate.txt"]
    print(f"# {sys.argv[1]}, tokenizers {tokenizers.__version__}, 1 thread\ntexts,n,bytes,tokens,median_MB_s,best_MB_s")
    for name in names:
        texts = read_texts(name)
        n_bytes, seconds = sum(len(x.encode()) for x in texts), []
        while len(seconds) < 5:
            start = time.process_time()
            n_tokens = sum(len(t.encode(x).ids) for x in texts)
            seconds.append(time.process_time() - start)
        seconds.sort()
        print(f"{name},{len(texts)},{n_bytes},{n_tokens},{n_bytes / 1e6 / seconds[2]:.2f},{n_bytes / 1e6 / seconds[0]:.2f}", flush=True)


main()
