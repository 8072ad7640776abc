#!/usr/bin/env python3
"""Writes the smallest checkpoint that exercises the model file's reader, with random weights: what tests/golden-bad is made from.

usage: make-mini.py OUT_DIR          (needs numpy and safetensors)
"""
import json, os, sys
import numpy as np
from safetensors.numpy import save_file

D, F, LAYERS, POSITIONS = 8, 8, 2, 56
VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##b dog".split()


def main(out):
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(1)
    shapes = {"embeddings.word_embeddings.weight": (len(VOCAB), D), "embeddings.position_embeddings.weight": (POSITIONS, D),
              "embeddings.token_type_embeddings.weight": (2, D), "embeddings.LayerNorm.weight": (D,), "embeddings.LayerNorm.bias": (D,)}
    for i in range(LAYERS):
        for name, n, k in [("attention.self.query", D, D), ("attention.self.key", D, D), ("attention.self.value", D, D), ("attention.output.dense", D, D),
                           ("intermediate.dense", F, D), ("output.dense", D, F)]:
            shapes[f"encoder.layer.{i}.{name}.weight"], shapes[f"encoder.layer.{i}.{name}.bias"] = (n, k), (n,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{i}.{name}.weight"], shapes[f"encoder.layer.{i}.{name}.bias"] = (D,), (D,)
    save_file({k: rng.normal(size=s).astype("f4") for k, s in shapes.items()}, out + "/model.safetensors")
    config = dict(architectures=["BertModel"], model_type="bert", hidden_act="gelu", hidden_size=D, intermediate_size=F, layer_norm_eps=1e-12,
                  max_position_embeddings=POSITIONS, num_attention_heads=2, num_hidden_layers=LAYERS, pad_token_id=0, type_vocab_size=2, vocab_size=len(VOCAB))
    json.dump(config, open(out + "/config.json", "w"), indent=1)
    json.dump(dict(do_lower_case=True, tokenizer_class="BertTokenizer"), open(out + "/tokenizer_config.json", "w"))
    open(out + "/vocab.txt", "w").write("\n".join(VOCAB) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
