#!/usr/bin/env python3
"""Writes the tiny checkpoints of tests/golden and what Hugging Face transformers computes from them.

usage: make-golden.py OUT_DIR          (needs torch and transformers; written with transformers 5.24.0, torch 2.15.0)

Each OUT_DIR/NAME is a checkpoint folder in Hugging Face layout with random weights; NAME/expected.jsonl has a header line and then a row per text:
ids and types by the tokenizer, `hidden`: the embedding output and every layer's output, [layers + 1][tokens][width], float32 of batch 1 without padding.
"""
import json, os, sys
import torch, transformers
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = """the a of and to in is was it for on that with as at by from his her not are be this had but all were they she he one or an there which we you
sun sea salt river bridge train book house dog cat child music green red old new long small great day night year time man woman people water
run read eat sleep sing work play walk come go see know think say make take give find tell ask use""".split()
TEXTS = [("The dog sleeps under the old bridge.", None), ("a", None), ("", None), ("She reads; he sings: who is right?", "They are both right!"),
         ("Caf\u00e9 na\u00efve \u00fcber 123,45", None), ("\u5927\u5bb6\u597d green", "\u306f\u3072"), ("the sea and the salt and the sun " * 4, None)]


def vocabulary():
    chars = [chr(c) for c in range(33, 127) if not chr(c).isupper()] + list("\u5927\u597d\u306f\u20ac")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + chars + ["##" + c for c in chars if c.isalnum()] + WORDS + ["##s", "##ing", "##er", "##ed"]
    return list(dict.fromkeys(pieces))


def outliers(model, generator):
    """A few channels of each LayerNorm are made large, as in trained models; this is what smoothing is for."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("LayerNorm.weight"):
                p.copy_(0.8 + 0.4 * torch.rand(p.shape, generator=generator))
                p[torch.randperm(len(p), generator=generator)[:2]] *= 8
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn(p.shape, generator=generator))


def make(out, name, seed, **sizes):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    vocab = vocabulary()
    with open(folder + "/vocab.txt", "w") as f:
        f.write("\n".join(vocab) + "\n")
    tokenizer = BertTokenizerFast(vocab=folder + "/vocab.txt", do_lower_case=True, model_max_length=sizes["max_position_embeddings"])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(vocab), initializer_range=0.1, attn_implementation="eager", **sizes)
    model = BertModel(config, add_pooling_layer=False).eval()
    outliers(model, torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    with open(folder + "/expected.jsonl", "w") as f:
        f.write(json.dumps(dict(reference=f"transformers {transformers.__version__}, torch {torch.__version__}, float32", checkpoint=name, seed=seed)) + "\n")
        for a, b in TEXTS:
            e = tokenizer(a, b) if b is not None else tokenizer(a)
            with torch.no_grad():
                h = model(input_ids=torch.tensor([e["input_ids"]]), token_type_ids=torch.tensor([e["token_type_ids"]]), output_hidden_states=True).hidden_states
            hidden = [[[float(f"{v:.7g}") for v in row] for row in layer[0].tolist()] for layer in h]
            f.write(json.dumps(dict(a=a, b=b, ids=e["input_ids"], types=e["token_type_ids"], hidden=hidden), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1], "bert-64", 1, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)
    make(sys.argv[1], "bert-40", 2, hidden_size=40, num_hidden_layers=2, num_attention_heads=5, intermediate_size=72, max_position_embeddings=56, hidden_act="gelu_new")
