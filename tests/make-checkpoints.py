#!/usr/bin/env python3
"""Makes tests/data/checkpoints: small checkpoints, good and hostile, and cases.json with what reading them must give.

    python3 tests/make-checkpoints.py tests/data/checkpoints

Made with Python 3.11, numpy 2.4.6, ml_dtypes 0.6.0, safetensors 0.8.0. Values come from numpy, checksums from zlib; every good safetensors file is read back with
the safetensors library first. The same versions give the same bytes. test-checkpoint.cpp reads the result.

cases.json: a list of {folder, status, message, tensors, roles, ignored, refused}. status is the SQ_E_* code that opening gives, message a part of the text. tensors: for each
name its dtype, shape, and the CRC-32 of its values as little-endian f32 in row-major order, or `error`, a part of read_f32's message. Folders with a config.json (for test-config.cpp) also have roles, the name of the tensor that plays each role of
convert/names.h, and ignored, the names of tensors without one; or refused, a part of the message that mapping names to roles gives.
"""
import json
import os
import shutil
import struct
import sys
import zlib

import ml_dtypes
import numpy as np
import safetensors

OK, E_IO, E_FORMAT = 0, -2, -3
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}
NAME_OF = {np.dtype(v): k for k, v in DTYPES.items()}

out = sys.argv[1]
cases = []
rng = np.random.default_rng(1)


def put(folder, files):
    os.makedirs(os.path.join(out, folder), exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(out, folder, name), "wb") as f:
            f.write(data)


def expect(array):
    """What read_f32 must give for an array; integers are refused."""
    entry = {"dtype": NAME_OF[array.dtype], "shape": list(array.shape)}
    if entry["dtype"] in ("I64", "I32", "U8", "BOOL"):
        entry["error"] = "holds " + entry["dtype"]
    else:
        entry["crc32"] = zlib.crc32(array.astype("<f4").tobytes())
    return entry


def good(folder, files, arrays, **more):
    put(folder, files)
    cases.append({"folder": folder, "status": OK, "tensors": {k: expect(v) for k, v in arrays.items()}, **more})


def bad(folder, files, message, status=E_FORMAT):
    put(folder, files)
    cases.append({"folder": folder, "status": status, "message": message})


def dump(value):
    return json.dumps(value).encode()


# ---- safetensors ----


def raw_safetensors(header, data=b""):
    """A file of that header (bytes, or a value for JSON), whatever it claims."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def make_safetensors(arrays):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, a in arrays.items():
        header[name] = {"dtype": NAME_OF[a.dtype], "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    file = raw_safetensors(header, data)
    back = dict(safetensors.deserialize(file))
    assert {k: (NAME_OF[v.dtype], list(v.shape), v.tobytes()) for k, v in arrays.items()} == {k: (v["dtype"], v["shape"], bytes(v["data"])) for k, v in back.items()}
    return file


def random(shape, dtype="F32"):
    return (rng.standard_normal(shape) * 3).astype(np.float32).astype(DTYPES[dtype])


def safetensors_cases():
    # Every kind of f16: subnormal, smallest, largest, both zeros; the same for the others where it matters.
    halves = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0x3555], np.uint16).view(np.float16)
    arrays = {
        "f32": random((3, 5)),
        "f16": random((4, 2, 3), "F16"),
        "f16.special": halves,
        "bf16": random((7,), "BF16"),
        "bf16.special": np.array([0x0000, 0x8000, 0x0001, 0x7F7F, 0xFF7F], np.uint16).view(ml_dtypes.bfloat16),
        "f64": np.array([[0.1, -1e-300], [1e30, 3.4028234663852886e38]]),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "position_ids": np.arange(6, dtype=np.int64).reshape(1, 6),
        "i32": np.arange(3, dtype=np.int32),
        "bool": np.array([True, False]),
        "caf\u00e9 \U0001f642": random((1,)),
    }
    good("st-types", {"model.safetensors": make_safetensors(arrays)}, arrays)
    good("st-empty", {"model.safetensors": raw_safetensors({})}, {})
    a = {"x": random((2, 2)), "y": random((3,))}
    # Padding after the header, as writers align the data; tensors listed in another order than their bytes.
    text = json.dumps({"y": {"dtype": "F32", "shape": [3], "data_offsets": [16, 28]}, "x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
    good("st-order", {"model.safetensors": raw_safetensors(text + b" " * 13, a["x"].tobytes() + a["y"].tobytes())}, a)
    # safetensors wins over .bin, a single file over shards.
    good("st-preferred", {"model.safetensors": make_safetensors(a), "model.safetensors.index.json": b"{", "pytorch_model.bin": b"junk"}, a)

    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

    def st(name, file, message):
        bad("st-" + name, {"model.safetensors": file}, message)

    def tensor(name, message, data=bytes(8), **changes):
        st(name, raw_safetensors({"w": {**one, **changes}}, data), message)

    st("no-bytes", b"", "too short")
    st("seven-bytes", bytes(7), "too short")
    st("header-beyond", struct.pack("<Q", 100) + b"{}", "header runs past the end")
    st("header-huge", struct.pack("<Q", 2**64 - 1) + b"{}", "header runs past the end")
    st("header-wraps", struct.pack("<Q", 2**64 - 8) + b"{}", "header runs past the end")
    st("header-none", struct.pack("<Q", 0), "the text ends where a value should be")
    st("header-list", raw_safetensors([]), "not a JSON object")
    st("header-junk", raw_safetensors(b"{\"w\": \xff\xfe}"), "no JSON value starts so")
    st("header-deep", raw_safetensors(b"{\"w\":" + b"[" * 5000), "nested too deeply")
    st("name-not-utf8", raw_safetensors(b'{"\xc3\x28": 1}'), "not valid UTF-8")
    st("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n", "Git LFS pointer")
    st("entry-number", raw_safetensors({"w": 1}), "tensor 'w': no dtype")
    tensor("dtype-none", "no dtype", dtype=7)
    tensor("dtype-f8", "dtype 'F8_E4M3' is not supported", dtype="F8_E4M3")
    tensor("shape-none", "its shape is not a list of counts", shape=None)
    tensor("shape-negative", "its shape is not a list of counts", shape=[-2])
    tensor("shape-fraction", "its shape is not a list of counts", shape=[2.0])
    tensor("shape-2-64", "its shape is not a list of counts", shape=[2**64])
    tensor("shape-wraps", "shape [4294967296, 4294967296, 2] and dtype do not fit its 8 bytes", shape=[2**32, 2**32, 2])
    tensor("shape-wraps-to-2", "do not fit its 8 bytes", shape=[2**63 - 1, 2, 2, 2**62 + 2])
    tensor("bytes-wrap", "do not fit its 8 bytes", shape=[2**62 + 2])
    tensor("shape-zero-huge", "do not fit its 8 bytes", shape=[2**62, 2**62, 0])
    tensor("shape-larger", "shape [3] and dtype do not fit its 8 bytes", shape=[3])
    tensor("shape-many", "do not fit", shape=[2] * 1000)
    tensor("dtype-smaller", "do not fit", dtype="F16")
    tensor("offsets-none", "data_offsets are not two counts", data_offsets=[0])
    tensor("offsets-negative", "data_offsets are not two counts", data_offsets=[-8, 0])
    tensor("offsets-reversed", "its bytes lie outside the file", data_offsets=[8, 0])
    tensor("offsets-beyond", "its bytes lie outside the file", data_offsets=[0, 12], shape=[3])
    tensor("offsets-huge", "its bytes lie outside the file", data_offsets=[2**63 - 8, 2**63 - 1], shape=[2])
    tensor("truncated", "its bytes lie outside the file", data=bytes(7))
    tensor("hole", "there is a hole before its bytes", data=bytes(12), data_offsets=[4, 12])
    st("trailing", raw_safetensors({"w": one}, bytes(9)), "bytes follow the last tensor")
    st("overlap", raw_safetensors({"v": one, "w": {**one, "data_offsets": [4, 12]}}, bytes(12)), "tensor 'w': its bytes overlap another tensor's")
    st("same-bytes", raw_safetensors({"v": one, "w": one}, bytes(8)), "its bytes overlap another tensor's")
    st("unprintable", raw_safetensors({"\x1b[2J\n" + "w" * 500: {**one, "dtype": "X"}}, bytes(8)), "tensor '?[2J?wwww")

    for name, array, at in (("nan", [1, 2, np.nan], 2), ("infinity", [-np.inf, 0], 0)):
        for dtype in ("F32", "F16", "BF16", "F64"):
            a = {"w": np.array([array], DTYPES[dtype])}
            put(f"st-{name}-{dtype.lower()}", {"model.safetensors": make_safetensors(a)})
            cases.append({"folder": f"st-{name}-{dtype.lower()}", "status": OK, "tensors": {"w": {**expect(a["w"]), "error": f"'w': element {at} is not finite"}}})
    a = {"w": np.array([[0, 1e39]])}
    put("st-f64-large", {"model.safetensors": make_safetensors(a)})
    cases.append({"folder": "st-f64-large", "status": OK, "tensors": {"w": {"dtype": "F64", "shape": [1, 2], "error": "element 1 is not finite"}}})


def shard_cases():
    x, y = {"x": random((2, 3)), "x2": random((4,), "BF16")}, {"y": random((2,), "F16")}
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    both = {one: make_safetensors(x), two: make_safetensors(y)}
    full = {"x": one, "x2": one, "y": two}

    def index(weight_map):
        return {"model.safetensors.index.json": dump({"metadata": {"total_size": 44}, "weight_map": weight_map})}

    good("shards", {**both, **index(full)}, {**x, **y})
    bad("shards-missing", {one: both[one], **index(full)}, "shard " + two + ", which model.safetensors.index.json lists, is missing", E_IO)
    for name, path in (("slash", "sub/" + one), ("absolute", "/etc/passwd"), ("parent", ".."), ("dot", "."), ("empty", ""), ("nul", one + "\0"), ("backslash", "a\\b")):
        bad("shards-path-" + name, {**both, **index({**full, "y": path})}, "is not the name of a file in this folder")
    bad("shards-number", {**both, **index({**full, "y": 7})}, "tensor 'y': '' is not the name")
    bad("shards-no-map", {**both, "model.safetensors.index.json": b"{}"}, "no weight_map")
    bad("shards-map-list", {**both, **index([one])}, "no weight_map")
    bad("shards-not-json", {**both, "model.safetensors.index.json": b"{\"weight_map\": {"}, "model.safetensors.index.json: line 1, column 17: a key in quotes is missing")
    bad("shards-no-tensor", {**both, **index({**full, "z": two})}, "shard " + two + " has no tensor 'z'")
    bad("shards-wrong-shard", {**both, **index({**full, "y": one})}, "shard " + one + " has no tensor 'y'")
    bad("shards-repeat", {one: both[one], two: make_safetensors({**y, "x": x["x"]}), **index(full)}, two + ": tensor 'x' is also in " + one)
    bad("no-weights", {"config.json": b"{}"}, "has neither model.safetensors nor pytorch_model.bin", E_IO)


# ---- models: config.json and names ----

L, D, H, F, V, P, T = 2, 4, 2, 6, 11, 8, 2
BERT_LAYER = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value", "out": "attention.output.dense",
              "out_norm": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense", "down_norm": "output.LayerNorm"}
DISTILBERT_LAYER = {"query": "attention.q_lin", "key": "attention.k_lin", "value": "attention.v_lin", "out": "attention.out_lin", "out_norm": "sa_layer_norm",
                    "up": "ffn.lin1", "down": "ffn.lin2", "down_norm": "output_layer_norm"}
SIZES = {"up": (F, D), "down": (D, F)}


class Model:
    """Tensors by name, and names by role."""

    def __init__(self, prefix="", distilbert=False, old_norms=False, rows=P, types=T):
        self.arrays, self.roles, self.prefix = {}, {}, prefix
        self.old_norms = old_norms
        self.add("embed.words", prefix + "embeddings.word_embeddings.weight", (V, D))
        self.add("embed.positions", prefix + "embeddings.position_embeddings.weight", (rows, D))
        if not distilbert:
            self.add("embed.types", prefix + "embeddings.token_type_embeddings.weight", (types, D))
        self.norm("embed.norm", prefix + "embeddings.LayerNorm")
        for i in range(L):
            for role, module in (DISTILBERT_LAYER if distilbert else BERT_LAYER).items():
                name = f"{prefix}{'transformer' if distilbert else 'encoder'}.layer.{i}.{module}"
                if role.endswith("norm"):
                    self.norm(f"layer.{i}.{role}", name)
                else:
                    self.linear(f"layer.{i}.{role}", name, SIZES.get(role, (D, D)))

    def add(self, role, name, shape, dtype="F32"):
        if role:
            self.roles[role] = name
        self.arrays[name] = random(shape, dtype)
        return self

    def linear(self, role, name, shape):
        return self.add(role and role + ".weight", name + ".weight", shape).add(role and role + ".bias", name + ".bias", shape[:1])

    def norm(self, role, name):
        self.add(role + ".gamma", name + (".gamma" if self.old_norms else ".weight"), (D,))
        self.add(role + ".beta", name + (".beta" if self.old_norms else ".bias"), (D,))


BERT = {"model_type": "bert", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": F, "vocab_size": V,
        "max_position_embeddings": P, "type_vocab_size": T, "hidden_act": "gelu"}
DISTILBERT = {"model_type": "distilbert", "dim": D, "n_layers": L, "n_heads": H, "hidden_dim": F, "vocab_size": V, "max_position_embeddings": P}
XLMR = {**BERT, "model_type": "xlm-roberta", "type_vocab_size": 1, "max_position_embeddings": P + 2, "pad_token_id": 1, "layer_norm_eps": 1e-5}


def model(folder, config, architecture, m, refused=None, **more):
    config = {**config, **more, "architectures": [architecture]}
    files = {"config.json": dump(config), "model.safetensors": make_safetensors(m.arrays)}
    ignored = sorted(set(m.arrays) - set(m.roles.values()))
    good("model-" + folder, files, m.arrays, **({"refused": refused} if refused else {"roles": m.roles, "ignored": ignored}))


def model_cases():
    three = {"id2label": {str(i): f"label {i}" for i in range(3)}}
    model("bert", BERT, "BertModel", Model().linear(None, "pooler.dense", (D, D)).add(None, "embeddings.position_ids", (1, P), "I64"))
    model("bert-prefix", BERT, "BertModel", Model("bert."))
    model("bert-any-prefix", BERT, "BertModel", Model("0.auto_model."))
    model("bert-old-norms", BERT, "BertForMaskedLM",
          Model("bert.", old_norms=True).linear(None, "cls.predictions.transform.dense", (D, D)).add(None, "cls.seq_relationship.bias", (2,)))
    model("bert-classify", BERT, "BertForSequenceClassification",
          Model("bert.").linear("head.dense", "bert.pooler.dense", (D, D)).linear("head.out", "classifier", (3, D)), **three)
    model("bert-classify-no-pooler", BERT, "BertForSequenceClassification", Model("bert.").linear("head.out", "classifier", (3, D)),
          "tensor 'bert.pooler.dense.weight' of shape [4, 4] is missing", **three)
    model("bert-classify-rows", BERT, "BertForSequenceClassification",
          Model("bert.").linear("head.dense", "bert.pooler.dense", (D, D)).linear("head.out", "classifier", (2, D)),
          "model.safetensors: tensor 'classifier.weight' has shape [2, 4]; by config.json it is [3, 4]", **three)
    model("bert-answer", BERT, "BertForQuestionAnswering", Model("bert.").linear("head.out", "qa_outputs", (2, D)).linear(None, "bert.pooler.dense", (D, D)))
    model("bert-tag", BERT, "BertForTokenClassification", Model("bert.").linear("head.out", "classifier", (3, D)), **three)
    model("bert-unexpected-head", BERT, "BertModel", Model("bert.").linear(None, "classifier", (3, D)),
          "tensor 'classifier.weight' of shape [3, 4] has no known meaning in a bert model of architecture BertModel")
    model("bert-third-layer", BERT, "BertModel", Model().linear(None, "encoder.layer.2.output.dense", (D, F)), "tensor 'encoder.layer.2.output.dense.weight' of shape [4, 6] has no")
    model("bert-two", BERT, "BertModel", Model("a.").add(None, "b.embeddings.word_embeddings.weight", (V, D)), "two encoders: tensors 'a.embeddings")
    model("bert-vocabulary", BERT, "BertModel", Model(), "'embeddings.word_embeddings.weight' has shape [11, 4]; by config.json it is [12, 4]", vocab_size=12)
    model("bert-named-distilbert", DISTILBERT, "DistilBertModel", Model(), "tensor 'transformer.layer.0.attention.q_lin.weight' of shape [4, 4] is missing")
    m = Model()
    m.arrays = {k: v for k, v in m.arrays.items() if "word_embeddings" not in k}
    model("bert-no-words", BERT, "BertModel", m, "no tensor's name ends in 'embeddings.word_embeddings.weight'")
    model("distilbert", DISTILBERT, "DistilBertModel", Model(distilbert=True))
    model("distilbert-classify", DISTILBERT, "DistilBertForSequenceClassification",
          Model("distilbert.", True).linear("head.dense", "pre_classifier", (D, D)).linear("head.out", "classifier", (3, D)), **three)
    model("distilbert-words", DISTILBERT, "DistilBertForMaskedLM",
          Model("distilbert.", True).linear(None, "vocab_transform", (D, D)).linear(None, "vocab_layer_norm", (D,)).linear(None, "vocab_projector", (V, D)))
    model("distilbert-answer", DISTILBERT, "DistilBertForQuestionAnswering", Model("distilbert.", True).linear("head.out", "qa_outputs", (2, D)))
    model("xlmr", XLMR, "XLMRobertaModel", Model(rows=P + 2, types=1).linear(None, "pooler.dense", (D, D)))
    model("xlmr-classify", XLMR, "XLMRobertaForSequenceClassification",
          Model("roberta.", rows=P + 2, types=1).linear("head.dense", "classifier.dense", (D, D)).linear("head.out", "classifier.out_proj", (1, D)), id2label={"0": "x"})
    model("xlmr-words", XLMR, "XLMRobertaForMaskedLM",
          Model("roberta.", rows=P + 2, types=1).linear(None, "lm_head.dense", (D, D)).add(None, "roberta.embeddings.token_type_ids", (1, P + 2), "I64"))


shutil.rmtree(out, ignore_errors=True)
safetensors_cases()
shard_cases()
model_cases()
with open(os.path.join(out, "cases.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
