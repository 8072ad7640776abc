#!/usr/bin/env python3
"""Writes the tiny checkpoints of tests/golden and what Hugging Face transformers computes from them.

usage: make-golden.py OUT_DIR          (needs torch and transformers; written with transformers 5.24.0, torch 2.15.0)

Each OUT_DIR/NAME is a checkpoint folder in Hugging Face layout with random weights; NAME/expected.jsonl has a header line and then a row per text (a, or the
pair a, b): ids and types by the tokenizer, and float32 results of batch 1 without padding, as the checkpoint's class gives them:
    hidden     [layers][tokens][width]: bert-64 and bert-40 the embedding output and every layer's, the others the last layer's only
    logits     [labels] of a text, or [tokens][labels]
    vector     [dimensions], the sentence embedding (pooling, Dense, Normalize computed here as modules.json says)
    answers    the best spans over all windows: [first byte, past the last byte, score, probability]; `null`: score of no answer; `lengths`: tokens of each window
    entities   [label, first byte, past the last byte, score, words] by the pipeline's aggregation "simple"; `words`: [label, first byte, past, score] by "first"
"""
import json, os, sys
import numpy as np, torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (BertConfig, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification, BertModel, BertTokenizerFast,
                          DistilBertConfig, DistilBertForSequenceClassification, DistilBertModel, DistilBertTokenizerFast, PreTrainedTokenizerFast,
                          XLMRobertaConfig, XLMRobertaForSequenceClassification)
from transformers.pipelines.token_classification import AggregationStrategy, TokenClassificationPipeline

WORDS = """the a of and to in is was it for on that with as at by from his her not are be this had but all were they she he one or an there which we you
sun sea salt river bridge train book house dog cat child music green red old new long small great day night year time man woman people water
run read eat sleep sing work play walk come go see know think say make take give find tell ask use""".split()
TEXTS = [("The dog sleeps under the old bridge.", None), ("a", None), ("", None), ("She reads; he sings: who is right?", "They are both right!"),
         ("Caf\u00e9 na\u00efve \u00fcber 123,45", None), ("\u5927\u5bb6\u597d green", "\u306f\u3072"), ("the sea and the salt and the sun " * 4, None)]
SENTENCES = ["the cat and the dog sleep in the old house by the river", "she had read a great book", "the children were singing on the bridge", "caf\u00e9 \u5927\u597d music at night",
             "people say that the sea takes all", "he walked from the train to the water", "\u20ac 5 for a small red book", "the year was long but the work was not"]


def vocabulary():
    chars = [chr(c) for c in range(33, 127) if not chr(c).isupper()] + list("\u5927\u597d\u306f\u20ac")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + chars + ["##" + c for c in chars if c.isalnum()] + WORDS + ["##s", "##ing", "##er", "##ed"]
    return list(dict.fromkeys(pieces))


def is_norm(name):
    return "LayerNorm" in name or "layer_norm" in name


def outliers(model, generator):
    """A few channels of each LayerNorm are made large, as in trained models; this is what smoothing is for."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if is_norm(name) and name.endswith("weight"):
                p.copy_(0.8 + 0.4 * torch.rand(p.shape, generator=generator))
                p[torch.randperm(len(p), generator=generator)[:2]] *= 8
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn(p.shape, generator=generator))


# ---- tokenizers ----

def wordpiece(folder, cls, max_len):
    vocab = vocabulary()
    with open(folder + "/vocab.txt", "w") as f:
        f.write("\n".join(vocab) + "\n")
    tokenizer = cls(vocab=folder + "/vocab.txt", do_lower_case=True, model_max_length=max_len)
    tokenizer.save_pretrained(folder)
    return tokenizer, len(vocab)


def unigram(folder, max_len):
    """Like XLM-R's, with its ids of special tokens, and a score for each piece by rank (Zipf's law)."""
    bar = "\u2581"
    chars = [chr(c) for c in range(33, 127)] + list("\u5927\u597d\u306f\u20ac\u00e9")
    pieces = [bar] + [bar + w for w in WORDS] + ["s", "ing", "er", "ed"] + chars
    entries = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p, -float(np.log(10.0 * (i + 2)))) for i, p in enumerate(dict.fromkeys(pieces))]
    t = Tokenizer(models.Unigram(entries, unk_id=3, byte_fallback=False))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>", cls_token="<s>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=max_len, **names)
    tokenizer.save_pretrained(folder)
    return tokenizer, len(entries)


# ---- what is computed ----

def rounded(x):
    return [rounded(v) for v in x] if isinstance(x, list) else float(f"{x:.7g}")


def values(tensor):
    return rounded(tensor.tolist())


def encode(tokenizer, a, b):
    """Through the tokenizer's backend: the class takes an empty second text for none."""
    tokenizer.backend_tokenizer.no_truncation()
    e = tokenizer.backend_tokenizer.encode(a, b)
    return e.ids, e.type_ids if "token_type_ids" in tokenizer.model_input_names else [0] * len(e.ids)


def run(model, ids, types):
    inputs = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones((1, len(ids)), dtype=torch.int64))
    if model.config.model_type == "bert":
        inputs["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        return model(output_hidden_states=True, **inputs)


def to_bytes(text, n_chars):
    return len(text[:n_chars].encode())


def write(folder, seed, rows):
    with open(folder + "/expected.jsonl", "w") as f:
        f.write(json.dumps(dict(reference=f"transformers {transformers.__version__}, torch {torch.__version__}, float32", checkpoint=os.path.basename(folder), seed=seed)) + "\n")
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")


def build(out, name, seed, config_class, model_class, tokenizer_class, **settings):
    """The checkpoint folder OUT/NAME; returns folder, tokenizer and model. The longest sequence is that of the position table."""
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    n_positions = settings["max_position_embeddings"]
    if tokenizer_class is None:
        tokenizer, n_vocab = unigram(folder, n_positions - 2)
    else:
        tokenizer, n_vocab = wordpiece(folder, tokenizer_class, n_positions)
    torch.manual_seed(seed)
    config = config_class(vocab_size=n_vocab, initializer_range=0.1, attn_implementation="eager", **settings)
    model = (model_class(config, add_pooling_layer=False) if model_class is BertModel else model_class(config)).eval()
    outliers(model, torch.Generator().manual_seed(seed))
    return folder, tokenizer, model


# ---- encoders ----

def make_encoder(out, name, seed, all_layers, texts, *classes, **settings):
    folder, tokenizer, model = build(out, name, seed, *classes, **settings)
    model.save_pretrained(folder)
    rows = []
    for a, b in texts:
        ids, types = encode(tokenizer, a, b)
        h = run(model, ids, types).hidden_states
        rows.append(dict(a=a, b=b, ids=ids, types=types, hidden=[values(layer[0]) for layer in (h if all_layers else h[-1:])]))
    write(folder, seed, rows)


def put_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def make_sentences(out, name, seed, pooling, n_dense, normalize, **settings):
    """A sentence-transformers folder: pooling "cls" or "max", then Dense with Tanh to n_dense dimensions if n_dense is not 0, then Normalize if asked."""
    from safetensors.torch import save_file
    folder, tokenizer, model = build(out, name, seed, BertConfig, BertModel, BertTokenizerFast, **settings)
    model.save_pretrained(folder)
    width = model.config.hidden_size
    modules = ["Transformer", "Pooling"] + ["Dense"] * (n_dense > 0) + ["Normalize"] * normalize
    put_json(folder + "/modules.json", [dict(idx=i, name=str(i), path=f"{i}_{m}" if i else "", type="sentence_transformers.models." + m) for i, m in enumerate(modules)])
    flags = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    put_json(folder + "/1_Pooling/config.json", dict(word_embedding_dimension=width, **flags))
    if n_dense:
        dense = torch.nn.Linear(width, n_dense)
        settings = dict(in_features=width, out_features=n_dense, bias=True, activation_function="torch.nn.modules.activation.Tanh")
        put_json(folder + "/2_Dense/config.json", settings)
        save_file({"linear." + k: v.detach().contiguous() for k, v in dense.state_dict().items()}, folder + "/2_Dense/model.safetensors")
    rows = []
    for a, b in TEXTS:
        ids, types = encode(tokenizer, a, b)
        h = run(model, ids, types).hidden_states[-1][0]
        v = h[0] if pooling == "cls" else h.max(dim=0).values
        with torch.no_grad():
            v = torch.tanh(dense(v)) if n_dense else v
        v = torch.nn.functional.normalize(v, dim=0) if normalize else v
        rows.append(dict(a=a, b=b, ids=ids, types=types, vector=values(v)))
    write(folder, seed, rows)


# ---- heads ----

def set_labels(model, labels):
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: i for i, label in enumerate(labels)}


def spread(model, last, scale, tokenizer, texts):
    """Makes the logits of the last layer differ from text to text: scaled, with a mean of 0 for each label."""
    with torch.no_grad():
        last.weight *= scale
        logits = torch.cat([run(model, *encode(tokenizer, a, b)).logits.reshape(-1, model.config.num_labels) for a, b in texts])
        last.bias -= logits.mean(dim=0)


def make_classify(out, name, seed, labels, scale, *classes, problem_type=None, texts=(), **settings):
    folder, tokenizer, model = build(out, name, seed, *classes, num_labels=len(labels), **settings)
    set_labels(model, labels)
    model.config.problem_type = problem_type
    texts = TEXTS + [(s, None) for s in SENTENCES] + list(texts)
    spread(model, getattr(model.classifier, "out_proj", model.classifier), scale, tokenizer, texts)
    model.save_pretrained(folder)
    rows = []
    for a, b in texts:
        ids, types = encode(tokenizer, a, b)
        result = run(model, ids, types)
        row = dict(a=a, b=b, ids=ids, types=types, logits=values(result.logits[0]))
        if len(rows) in (0, 3):
            row["hidden"] = [values(result.hidden_states[-1][0])]
        rows.append(row)
    write(folder, seed, rows)


QUESTIONS = [("who had the book?", "the old man had a red book and the woman had a green book", 0, 0, 30),
             ("which caf\u00e9?", "Caf\u00e9 \u5927\u597d, na\u00efve \u20ac5: the caf\u00e9 by the s\u00e9a \U0001f642 was great!", 0, 0, 30),
             ("where?", "house", 0, 0, 30), ("where?", "", 0, 0, 30), ("", "the sun and the sea", 0, 0, 3),
             ("what did she see?", "a great river, a small bridge, the night train " * 7, 0, 0, 30),
             ("what did she see?", " ".join(SENTENCES[:6]), 40, 12, 8), ("which?", "\u5927\u597d caf\u00e9 \u20ac " + " ".join(SENTENCES), 24, 5, 30),
             ("who?", " ".join(WORDS[::-2]), 16, 1, 2), ("who was it?", " ".join(reversed(SENTENCES)), 30, 20, 30)]


def windows(tokenizer, question, context, window, stride):
    """As transformers cuts them: ids, types and, for each token, its span in the context or None."""
    e = tokenizer(question, context, truncation="only_second", max_length=window, stride=stride, return_overflowing_tokens=True, return_offsets_mapping=True)
    for w in range(len(e["input_ids"])):
        spans = [o if s == 1 else None for o, s in zip(e["offset_mapping"][w], e.sequence_ids(w))]
        yield e["input_ids"][w], e["token_type_ids"][w], spans


def default_stride(tokenizer, question, window):
    room = window - len(encode(tokenizer, question, "")[0])
    return min(128, room // 2)


def answer_row(tokenizer, model, question, context, window, stride, longest):
    """Every pair of start and end is tried; a span keeps its best score over the windows. Probabilities are among the 20 best spans, and no answer."""
    limit = window or model.config.max_position_embeddings
    scores, null, lengths, logits = {}, float("inf"), [], None
    for ids, types, spans in windows(tokenizer, question, context, limit, stride or default_stride(tokenizer, question, limit)):
        result = run(model, ids, types)
        start, end = result.start_logits[0].numpy(), result.end_logits[0].numpy()
        logits = logits or values(torch.stack([result.start_logits[0], result.end_logits[0]], 1))
        inside = [i for i, span in enumerate(spans) if span]
        for i in inside:
            for j in range(i, min(i + longest, inside[-1] + 1)):
                where = (spans[i][0], spans[j][1])
                scores[where] = max(scores.get(where, -float("inf")), float(start[i] + end[j]))
        if inside:
            null = min(null, float(start[0] + end[0]))
            lengths.append(len(ids))
    best = sorted(scores.items(), key=lambda item: -item[1])[:20]
    assert len(best) < 2 or best[0][1] - best[1][1] > 1e-2, (question, best[:2])
    row = dict(a=question, b=context, window=window, stride=stride, longest=longest, lengths=lengths)
    ids, types = encode(tokenizer, question, context)
    if len(lengths) == 1:
        row["logits"] = logits
    mass = [np.exp(s - best[0][1]) for _, s in best]
    answers = [[to_bytes(context, i), to_bytes(context, j), s, float(m / sum(mass))] for ((i, j), s), m in zip(best, mass)]
    row.update(ids=ids, types=types, answers=[x[:2] + rounded(x[2:]) for x in answers])
    if best:
        assert abs(null - best[0][1]) > 1e-2, (question, null, best[0])
        odds = np.exp(null - best[0][1])
        row.update(null=rounded([null, float(odds / (odds + sum(mass)))]))
    return row


def make_answer(out, name, seed, **settings):
    folder, tokenizer, model = build(out, name, seed, BertConfig, BertForQuestionAnswering, BertTokenizerFast, **settings)
    with torch.no_grad():  # the first token's logits up, so that no answer wins for some
        hidden = [run(model, *encode(tokenizer, q[0], q[1][:80])).hidden_states[-1][0] for q in QUESTIONS]
        up = torch.stack([h[0] for h in hidden]).mean(dim=0) - torch.cat(hidden).mean(dim=0)
        model.qa_outputs.weight += 1.1 * up / up.square().sum()
    model.save_pretrained(folder)
    rows = [answer_row(tokenizer, model, *q) for q in QUESTIONS]
    beaten = [row["null"][0] > row["answers"][0][2] for row in rows if row["answers"]]
    assert any(beaten) and not all(beaten), beaten
    write(folder, seed, rows)


TAGGED = SENTENCES + [a for a, b in TEXTS if b is None] + ["The dog sleeps, the cats walked: caf\u00e9s in \u5927\u597d \u20ac, naive singers.", "sleepers\u00e9 \U0001f642 houses"]


def make_tag(out, name, seed, **settings):
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    folder, tokenizer, model = build(out, name, seed, BertConfig, BertForTokenClassification, BertTokenizerFast, num_labels=len(labels), **settings)
    set_labels(model, labels)
    spread(model, model.classifier, 3, tokenizer, [(text, None) for text in TAGGED])
    with torch.no_grad():  # entities that go on are rarer than those that begin; without this they would hardly occur
        model.classifier.bias += torch.tensor([0.5, -0.3, 0.8, -0.3, 0.3])
    model.save_pretrained(folder)
    pipe = TokenClassificationPipeline(model=model, tokenizer=tokenizer)
    rows, seen = [], set()
    for text in TAGGED:
        ids, types = encode(tokenizer, text, None)
        result = run(model, ids, types)
        rows.append(dict(a=text, b=None, ids=ids, types=types, logits=values(result.logits[0]), entities=[], words=[]))
        seen |= set(result.logits[0].argmax(-1).tolist())
        margins = result.logits[0].topk(2).values
        assert (margins[:, 0] - margins[:, 1]).min() > 1e-3, text
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        special = [0 if i not in (0, len(ids) - 1) else 1 for i in range(len(ids))]
        probabilities = torch.softmax(result.logits[0], -1).numpy()
        tokens = pipe.gather_pre_entities(text, np.array(ids), probabilities, offsets, special, AggregationStrategy.FIRST)
        if not tokens:
            continue
        place = lambda e: [to_bytes(text, e["start"]), to_bytes(text, e["end"]), rounded(float(e["score"]))]
        rows[-1]["words"] = [[e["entity"]] + place(e) for e in pipe.aggregate_words(tokens, AggregationStrategy.FIRST)]
        for e in pipe(text, aggregation_strategy="simple"):
            inside = [t for t in tokens if e["start"] <= t["start"] and t["end"] <= e["end"]]
            rows[-1]["entities"].append([e["entity_group"]] + place(e) + [1 + sum(not t["is_subword"] for t in inside[1:])])
    assert len(seen) == len(labels), seen
    write(folder, seed, rows)


def main(out):
    bert = (BertConfig, BertModel, BertTokenizerFast)
    make_encoder(out, "bert-64", 1, True, TEXTS, *bert, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)
    make_encoder(out, "bert-40", 2, True, TEXTS, *bert, hidden_size=40, num_hidden_layers=2, num_attention_heads=5, intermediate_size=72, max_position_embeddings=56,
                 hidden_act="gelu_new")
    make_encoder(out, "distilbert-64", 3, False, TEXTS, DistilBertConfig, DistilBertModel, DistilBertTokenizerFast, dim=64, n_layers=2, n_heads=4, hidden_dim=96,
                 max_position_embeddings=64)
    make_classify(out, "distilbert-multi", 4, ["joy", "anger", "\u00e9motion", "none of these"], 3, DistilBertConfig, DistilBertForSequenceClassification,
                  DistilBertTokenizerFast, problem_type="multi_label_classification", dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64)
    make_classify(out, "xlmr-48", 5, ["entailment", "neutral", "contradiction"], 5, XLMRobertaConfig, XLMRobertaForSequenceClassification, None, hidden_size=48,
                  num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1,
                  bos_token_id=0, eos_token_id=2, texts=[("the <pad> sea <pad><pad> and", "the salt <pad>"), ("<pad>", None), ("</s> the <s> <unk>", None)])
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
    classify = (BertConfig, BertForSequenceClassification, BertTokenizerFast)
    make_classify(out, "bert-classify", 6, ["entailment", "neutral", "contradiction"], 3, *classify, problem_type="single_label_classification", **small)
    make_classify(out, "bert-score", 7, ["LABEL_0"], 3, *classify, texts=[("the sea", s) for s in SENTENCES], **small)
    make_answer(out, "bert-answer", 8, **small)
    make_tag(out, "bert-tag", 10, **small)
    make_sentences(out, "sentence-max", 11, "max", 24, True, **small)
    make_sentences(out, "sentence-cls", 12, "cls", 0, False, **small)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
