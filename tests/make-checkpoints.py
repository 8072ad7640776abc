#!/usr/bin/env python3
"""Makes tests/data/checkpoints: small checkpoints, good and hostile, and cases.json with what reading them must give.

    python3 tests/make-checkpoints.py tests/data/checkpoints

Made with Python 3.11, numpy 2.4.6, ml_dtypes 0.6.0, safetensors 0.8.0. Values come from numpy, checksums from zlib. Every good safetensors file is read back with
the safetensors library first, every good PyTorch file with Python's zipfile and pickle; PyTorch itself is not needed: stand-ins with its names make pickle write
what torch.save writes (torch/serialization.py). The same versions give the same bytes.

cases.json is a list of {folder, status, message, tensors, roles, ignored, refused}. test-checkpoint.cpp reads
  status   the SQ_E_* code that opening gives; message: a part of the text
  tensors  for each name its dtype, shape, and the CRC-32 of its values as little-endian f32 in row-major order, or `error`, a part of read_f32's message
and test-config.cpp, of folders with a config.json,
  roles    the name of the tensor that plays each role of convert/names.h; ignored: the names of the others
  refused  instead: a part of the message that mapping names to roles gives
"""
import io
import json
import os
import pickle
import shutil
import struct
import sys
import types
import warnings
import zipfile
import zlib
from collections import OrderedDict

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
    paths = dict(slash="sub/" + one, absolute="/etc/passwd", parent="..", dot=".", empty="", nul=one + "\0", backslash="a\\b")
    for name, path in paths.items():
        bad("shards-path-" + name, {**both, **index({**full, "y": path})}, "is not the name of a file in this folder")
    bad("shards-number", {**both, **index({**full, "y": 7})}, "tensor 'y': '' is not the name")
    bad("shards-no-map", {**both, "model.safetensors.index.json": b"{}"}, "no weight_map")
    bad("shards-map-list", {**both, **index([one])}, "no weight_map")
    broken = {"model.safetensors.index.json": b"{\"weight_map\": {"}
    bad("shards-not-json", {**both, **broken}, "model.safetensors.index.json: line 1, column 17: a key in quotes is missing")
    bad("shards-no-tensor", {**both, **index({**full, "z": two})}, "shard " + two + " has no tensor 'z'")
    bad("shards-wrong-shard", {**both, **index({**full, "y": one})}, "shard " + one + " has no tensor 'y'")
    bad("shards-repeat", {one: both[one], two: make_safetensors({**y, "x": x["x"]}), **index(full)}, two + ": tensor 'x' is also in " + one)
    bad("no-weights", {"config.json": b"{}"}, "has neither model.safetensors nor pytorch_model.bin", E_IO)


# ---- PyTorch ----

STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage", "I64": "LongStorage", "I32": "IntStorage",
            "U8": "ByteStorage", "BOOL": "BoolStorage"}
MAGIC, STREAM_VERSION = 0x1950A86A20F9469CFC6C, 1001


def stand_in(module, name, make):
    """Something that pickle writes as the global module.name."""
    thing = make(name)
    thing.__module__, thing.__qualname__ = module, name
    sys.modules.setdefault(module, types.ModuleType(module))
    setattr(sys.modules[module], name, thing)
    return thing


STORAGE_CLASS = {k: stand_in("torch", name, lambda n: type(n, (), {})) for k, name in STORAGES.items()}
DTYPE_OF_CLASS = {v: k for k, v in STORAGE_CLASS.items()}


def rebuild_tensor(storage, offset, shape, strides, requires_grad=False, hooks=None):
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, [s * storage.itemsize for s in strides])


def function(name):
    f = rebuild_tensor if name == "_rebuild_tensor_v2" else lambda data, requires_grad, hooks: data
    return types.FunctionType(f.__code__, f.__globals__, name, f.__defaults__)


REBUILD_TENSOR = stand_in("torch._utils", "_rebuild_tensor_v2", function)
REBUILD_PARAMETER = stand_in("torch._utils", "_rebuild_parameter", function)


class Storage:
    def __init__(self, array, key, dtype=None, n=None):
        self.array, self.key = np.ascontiguousarray(array).reshape(-1), key
        self.dtype, self.n = dtype or NAME_OF[array.dtype], self.array.size if n is None else n


class Tensor:
    def __init__(self, storage, offset, shape, strides, parameter=False):
        self.arguments, self.parameter = (storage, offset, tuple(shape), tuple(strides), parameter, OrderedDict()), parameter

    def __reduce_ex__(self, protocol):
        if self.parameter:
            return REBUILD_PARAMETER, (Tensor(*self.arguments[:4]), True, OrderedDict())
        return REBUILD_TENSOR, self.arguments


def whole(array, key):
    """A tensor that is all of its storage."""
    return Tensor(Storage(array, key), 0, array.shape, [s // array.itemsize for s in np.empty(array.shape, array.dtype).strides])


def pickled(value, protocol=2, view=()):
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if isinstance(obj, Storage):
                return ("storage", STORAGE_CLASS[obj.dtype], obj.key, "cpu", obj.n) + view
            return None

    f = io.BytesIO()
    Pickler(f, protocol).dump(value)
    return f.getvalue()


def all_storages(value, found=None):
    found = {} if found is None else found
    for v in value.values():
        if isinstance(v, dict):
            all_storages(v, found)
        elif isinstance(v, Tensor):
            found[v.arguments[0].key] = v.arguments[0].array.tobytes()
    return found


def make_zip(entries, top="archive", compress=(), pad=True):
    """Stored entries, each aligned to 64 bytes by an extra field, as torch.save does."""
    f = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        warnings.simplefilter("ignore")  # about names that are there twice
        for name, data in entries:
            info = zipfile.ZipInfo(f"{top}/{name}" if top else name)
            info.compress_type = zipfile.ZIP_DEFLATED if name in compress else zipfile.ZIP_STORED
            if pad:
                n = -(f.tell() + 30 + len(info.filename) + 4) % 64
                info.extra = b"FB" + struct.pack("<H", n) + b"Z" * n
            z.writestr(info, data)
    return f.getvalue()


def bin_entries(value, data=None, order=b"little", **how):
    entries = [("data.pkl", pickled(value, **how) if data is None else data)] + ([] if order is None else [("byteorder", order)])
    return entries + [("data/" + k, v) for k, v in all_storages(value).items()] + [("version", b"3\n")]


def make_bin(value, top="archive", **how):
    return make_zip(bin_entries(value, **how), top)


def make_stream(value, version=STREAM_VERSION, little=True, cut=0, view=(None,), keys=None, counts=None):
    storages = all_storages(value)
    keys = sorted(storages) if keys is None else keys
    info = dict(protocol_version=STREAM_VERSION, little_endian=little, type_sizes=dict(short=2, int=4, long=4))
    data = b"".join(pickle.dumps(v, 2) for v in (MAGIC, version, info)) + pickled(value, view=view) + pickle.dumps(keys, 2)
    sizes = {v.arguments[0].key: v.arguments[0].n for v in value.values() if isinstance(v, Tensor)}
    for k in keys:
        data += struct.pack("<q", (counts or sizes)[k]) + storages[k]
    return data[: len(data) - cut]


def check_bin(file, arrays, path=()):
    """Reads the file with Python's own libraries and compares."""
    def unpickler(data, load):
        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid):
                return load(pid)
        return Unpickler(data)

    if file[:2] == b"PK":
        z = zipfile.ZipFile(io.BytesIO(file))
        assert z.testzip() is None
        top = z.namelist()[0].split("/")[0]
        value = unpickler(io.BytesIO(z.read(top + "/data.pkl")), lambda pid: np.frombuffer(z.read(f"{top}/data/{pid[2]}"), DTYPES[DTYPE_OF_CLASS[pid[1]]])).load()
    else:
        f, storages = io.BytesIO(file), {}
        assert pickle.load(f) == MAGIC and pickle.load(f) == STREAM_VERSION and pickle.load(f)["little_endian"]
        value = unpickler(f, lambda pid: storages.setdefault(pid[2], np.zeros(pid[4], DTYPES[DTYPE_OF_CLASS[pid[1]]]))).load()
        for key in pickle.load(f):
            (n,) = struct.unpack("<q", f.read(8))
            storages[key][:] = np.frombuffer(f.read(n * storages[key].itemsize), storages[key].dtype)
        assert not f.read()
    for step in path:
        value = value[step]
    value = {k: v for k, v in value.items() if isinstance(v, np.ndarray)}
    assert value.keys() == arrays.keys()
    assert all(v.dtype == arrays[k].dtype and v.shape == arrays[k].shape and np.array_equal(v, arrays[k]) for k, v in value.items())
    return file


def good_bin(folder, file, arrays, path=()):
    good("bin-" + folder, {"pytorch_model.bin": check_bin(file, arrays, path)}, arrays)


def bin_cases():
    arrays = {"f32": random((3, 5)), "f16": random((2, 3), "F16"), "bf16": random((4,), "BF16"), "f64": random((2, 2), "F64"),
              "i64": np.arange(6, dtype=np.int64).reshape(1, 6), "i32": np.arange(3, dtype=np.int32), "u8": np.arange(4, dtype=np.uint8), "bool": np.array([True, False]), "scalar": np.array(2.5, np.float32),
              "empty": np.zeros((0, 4), np.float32), "caf\u00e9": random((1,))}
    state = OrderedDict((k, whole(v, str(i))) for i, (k, v) in enumerate(arrays.items()))
    good_bin("types", make_bin(state), arrays)
    for protocol in (1, 3, 4, 5):
        good_bin(f"protocol-{protocol}", make_bin(state, protocol=protocol), arrays)
    good_bin("top-name", make_bin(state, top="pytorch_model"), arrays)
    good_bin("no-byteorder", make_bin(state, order=None), arrays)
    good_bin("stream", make_stream(state), arrays)

    base = random((6, 4))
    s = Storage(base, "0")
    views = OrderedDict(transposed=Tensor(s, 0, (4, 6), (1, 4)), rows=Tensor(s, 8, (2, 4), (4, 1)), column=Tensor(s, 3, (6,), (4,)),
                        steps=Tensor(s, 1, (3, 2), (8, 2)), cube=Tensor(s, 0, (2, 2, 3), (2, 1, 8)), parameter=Tensor(s, 0, (6, 4), (4, 1), True), one=Tensor(s, 23, (1, 1), (0, 999)))
    expected = dict(transposed=base.T, rows=base[2:4], column=base[:, 3], steps=base[::2, 1::2], cube=base[::2].reshape(3, 2, 2).transpose(1, 2, 0), parameter=base,
                    one=base[5:, 3:])
    expected = {k: np.ascontiguousarray(v) for k, v in expected.items()}
    good_bin("views", make_bin(views), expected)
    good_bin("stream-views", make_stream(views), expected)

    x = {"x": random((2, 3))}
    with_metadata = OrderedDict(x=whole(x["x"], "0"))
    with_metadata._metadata = OrderedDict([("", {"version": 1}), ("encoder", {"version": 2})])
    good_bin("metadata", make_bin(with_metadata), x)
    training = {"epoch": 3, "best": 0.5, "seed": 2**70, "least": -(2**63), "note": None, "done": True, "raw": b"\xff", "names": {"a"},
                "optimizer": {"state": {0: {"step": 7}}, "groups": [{"lr": 1e-3, "betas": (0.9, 0.999)}]}}
    for name in ("state_dict", "model_state_dict", "model"):
        good_bin("in-" + name.replace("_", "-"), make_bin({**training, name: OrderedDict(x=whole(x["x"], "0"))}, protocol=4), x, (name,))
    good_bin("plain-dict", make_bin({"x": whole(x["x"], "0"), "epoch": 3}), x)
    try:
        zipfile.ZIP64_LIMIT, limit, zipfile.ZIP_FILECOUNT_LIMIT, count = 0, zipfile.ZIP64_LIMIT, 1, zipfile.ZIP_FILECOUNT_LIMIT
        zip64 = make_zip(bin_entries(state), pad=False)
    finally:
        zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limit, count
    assert b"PK\6\6" in zip64
    good_bin("zip64", zip64, arrays)
    y = {"y": random((3,))}
    one, two = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
    files = {one: check_bin(make_bin({"x": whole(x["x"], "0")}), x), two: check_bin(make_stream({"y": whole(y["y"], "0")}), y)}
    good("bin-shards", {**files, "pytorch_model.bin.index.json": dump({"metadata": {}, "weight_map": {"x": one, "y": two}})}, {**x, **y})
    bad("bin-shards-missing", {one: files[one], "pytorch_model.bin.index.json": dump({"weight_map": {"x": one, "y": two}})}, "shard " + two + ", which", E_IO)
    bad_zips(state, arrays)
    bad_pickles()
    bad_tensors()
    bad_streams()


def bad_bin(folder, file, message):
    bad("bin-" + folder, {"pytorch_model.bin": file}, message)


def patched(file, at, data):
    return file[:at] + data + file[at + len(data):]


def bad_zips(state, arrays):
    entries = bin_entries(state)
    file = make_bin(state)
    end = file.rindex(b"PK\5\6")
    central = file.index(b"PK\1\2")
    bad_bin("no-bytes", b"", "neither a zip archive nor a stream")
    bad_bin("junk", b"junk" * 100, "neither a zip archive nor a stream")
    bad_bin("tar", bytes(257) + b"ustar\x0000" + bytes(255), "the tar form of PyTorch before 0.2")
    bad_bin("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer")
    bad_bin("zip-no-end", file[:end], "no directory at its end")
    bad_bin("zip-only-magic", b"PK\3\4", "no directory at its end")
    bad_bin("zip-many-entries", patched(file, end + 10, b"\xff\xff"), "the zip directory is damaged at entry")
    bad_bin("zip-directory-beyond", patched(file, end + 16, b"\xff\xff\xff\x7f"), "no directory at its end")
    bad_bin("zip-directory-elsewhere", patched(file, end + 16, b"\0\0\0\0"), "the zip directory is damaged at entry 0")
    bad_bin("zip-long-name", patched(file, central + 28, b"\xff\xff"), "the zip directory runs past the end")
    bad_bin("zip-header-beyond", patched(file, central + 42, b"\xfe\xff\xff\xff"), "zip entry 'archive/data.pkl' has no header")
    bad_bin("zip-header-elsewhere", patched(file, central + 42, b"\1\0\0\0"), "zip entry 'archive/data.pkl' has no header")
    bad_bin("zip-size-beyond", patched(file, central + 20, b"\0\0\0\x70\0\0\0\x70"), "zip entry 'archive/data.pkl' lies outside the file")
    bad_bin("zip-sizes-differ", patched(file, central + 24, b"\1"), "zip entry 'archive/data.pkl' lies outside the file")
    bad_bin("zip-no-zip64", patched(file, central + 20, b"\xff" * 8), "zip entry 'archive/data.pkl' has no header")
    bad_bin("zip-encrypted", patched(file, central + 8, b"\1"), "data.pkl is compressed")
    locator = b"PK\6\7" + struct.pack("<IQI", 0, 2**64 - 8, 1)
    bad_bin("zip-locator-wraps", file[:end] + locator + file[end:], "no directory at its end")
    end64 = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2**60, 2**60, 2**63, central)
    bad_bin("zip64-directory-huge", file[:end] + end64 + b"PK\6\7" + struct.pack("<IQI", 0, end, 1) + file[end:], "no directory at its end")
    end64 = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2**60, 2**60, end - central, central)
    bad_bin("zip64-many-entries", file[:end] + end64 + b"PK\6\7" + struct.pack("<IQI", 0, end, 1) + file[end:], "the zip directory is damaged at entry")
    bad_bin("zip-compressed-pickle", make_zip(entries, compress=("data.pkl",)), "data.pkl is compressed; torch.save stores it as it is")
    bad_bin("zip-compressed-data", make_zip(entries, compress=("data/0",)), "entry 'archive/data/0' is compressed")
    bad_bin("zip-bomb", make_zip([("data.pkl", bytes(10**7))], compress=("data.pkl",)), "data.pkl is compressed")
    bad_bin("zip-twice", make_zip(entries + entries[:1]), "zip entry 'archive/data.pkl' is there twice")
    bad_bin("zip-no-pickle", make_zip(entries[1:]), "a zip archive without data.pkl")
    bad_bin("zip-top-level", make_zip(entries, top=""), "a zip archive without data.pkl")
    bad_bin("zip-two-pickles", make_zip([("a/data.pkl", b"N."), ("b/data.pkl", b"N.")], top=""), "several data.pkl")
    bad_bin("zip-empty", b"PK\5\6" + bytes(18), "neither a zip archive nor a stream")
    for order in (b"big", b"", b"little "):
        bad_bin(f"byteorder-{len(order)}", make_bin(state, order=order), "its byte order is not little-endian")


class Call:
    """Pickles as a call of a function."""

    def __init__(self, f, *arguments):
        self.f, self.arguments = f, arguments

    def __reduce__(self):
        return self.f, self.arguments


def bad_pickles():
    def bad_raw(name, data, message):
        bad_bin("pickle-" + name, make_zip([("data.pkl", data)]), message)

    asks = "pickle: it asks for "
    for protocol in (2, 4):
        bad_raw(f"system-{protocol}", pickle.dumps({"x": Call(os.system, "echo harm")}, protocol), asks + "posix.system, which is no part of a plain state_dict")
        builtins = "builtins" if protocol == 4 else "__builtin__"
        bad_raw(f"eval-{protocol}", pickle.dumps({"x": Call(eval, "1")}, protocol), asks + builtins + ".eval")
    bad_raw("global-text", b"cos\nsystem\n(S'echo harm'\ntR.", asks + "os.system")
    bad_raw("global-near", b"ctorch._utils\n_rebuild_tensor_v3\n.", asks + "torch._utils._rebuild_tensor_v3")
    bad_raw("global-dotted", b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.", asks + "collections.OrderedDict.__init__")
    bad_raw("global-load", b"ctorch.storage\n_load_from_bytes\n(C\x01ztR.", asks + "torch.storage._load_from_bytes")
    bad_raw("global-unprintable", b"cos\x1b[2J\nx\n.", asks + "os?[2J.x")
    bad_raw("global-number", b"\x80\x04K\x01K\x02\x93.", "a global whose name is no text")
    bad_raw("inst", b"(S'x'\nios\nsystem\n.", "opcode 0x69 is unknown or not allowed")
    bad_raw("obj", b"(N" + b"o.", "opcode 0x6F is unknown or not allowed")
    bad_raw("newobj-ex", b"NNN\x92.", "opcode 0x92 is unknown or not allowed")
    bad_raw("extension", b"\x82\x01.", "opcode 0x82 is unknown or not allowed")
    bad_raw("persid", b"P0\n.", "opcode 0x50 is unknown or not allowed")
    bad_raw("buffer", b"\x97.", "opcode 0x97 is unknown or not allowed")
    bad_raw("opcode", b"\xff.", "opcode 0xFF is unknown or not allowed")
    bad_raw("protocol", b"\x80\x06N.", "a newer pickle protocol than 5")
    bad_raw("no-bytes", b"", "the pickle ends early (byte 0)")
    bad_raw("no-stop", b"\x80\x02}", "the pickle ends early (byte 3)")
    bad_raw("no-line", b"I12", "the pickle ends early")
    bad_raw("stop-empty", b".", "the stack is empty")
    bad_raw("stop-mark", b"}(.", "the stack is empty")
    bad_raw("no-mark", b"]t.", "no mark on the stack")
    bad_raw("below-mark", b"]]]((a.", "the stack is empty")
    bad_raw("pop", b"0.", "the stack is empty")
    bad_raw("dup", b"2.", "the stack is empty")
    bad_raw("memo-unset", b"h\x05.", "memo 5 is not set")
    bad_raw("memo-huge", b"Nr\xff\xff\xff\xff0j\xfe\xff\xff\xff.", "memo 4294967294 is not set")
    bad_raw("memo-negative", b"Np-1\n0g-2\n.", "memo 18446744073709551614 is not set")
    bad_raw("put-empty", b"q\0.", "the stack is empty")
    bad_raw("long-text", b"\x8d" + b"\xff" * 8 + b"x.", "the pickle ends early")
    bad_raw("long-text-4", b"X\xff\xff\xff\xffx.", "the pickle ends early")
    bad_raw("long-long", b"\x8b\xff\xff\xff\xffx.", "the pickle ends early")
    bad_raw("decimal-large", b"I99999999999999999999\n.", "what was saved is no dict")
    bad_raw("decimal-junk", b"I1x\n.", "not an integer")
    bad_raw("decimal-empty", b"L\n.", "not an integer")
    bad_raw("text-bytes", b"X\2\0\0\0\xc3\x28.", "a text is not valid UTF-8")
    bad_raw("text-surrogate", b"X\3\0\0\0\xed\xa0\x80.", "a text is not valid UTF-8")
    bad_raw("string-quotes", b"Sx'\n.", "a string without quotes")
    bad_raw("string-escape", b"S'\\x41'\n.", "not plain ASCII")
    bad_raw("append-dict", b"}Na.", "not a list")
    bad_raw("setitem-list", b"]NNs.", "not a dict")
    bad_raw("setitems-odd", b"}(Nu.", "a key without a value")
    bad_raw("dict-odd", b"(Nd.", "a key without a value")
    bad_raw("build-list", b"]}b.", "not a dict")
    bad_raw("call-none", b"N)R.", "a call of something that is no function")
    bad_raw("call-no-tuple", b"ccollections\nOrderedDict\nNR.", "a call of something that is no function")
    bad_raw("call-storage", b"ctorch\nFloatStorage\n)R.", "a call of torch.FloatStorage")
    bad_raw("pairs", b"ccollections\nOrderedDict\n]Na\x85R.", "OrderedDict of something else than pairs")
    pair_list = b"](" + b"NN\x86" * 50 + b"e\x85q\0" + b"0"
    bad_raw("pairs-again", b"ccollections\nOrderedDict\nq\1" + b"0" + pair_list + b"h\1h\0R0" * 500 + b"}.", "more pairs than bytes")
    bad_raw("parameter", b"ctorch._utils\n_rebuild_parameter\nN\x85R.", "a parameter without a tensor")
    bad_raw("tensor", b"ctorch._utils\n_rebuild_tensor_v2\nN\x85R.", "a tensor without a storage")
    bad_raw("storage-none", b"NQ.", "a persistent id that is no storage")
    bad_raw("storage-empty", b")Q.", "a persistent id that is no storage")
    bad_raw("storage-module", b"(U\6moduleNNNNtQ.", "a persistent id that is no storage")
    bad_raw("storage-no-class", b"(U\7storageccollections\nOrderedDict\nU\0010U\3cpuK\1tQ.", "a persistent id that is no storage")
    bad_raw("list", b"].", "what was saved is no dict of tensors")
    bad_raw("empty-dict", b"}.", "there are no tensors in the dict that was saved")
    loop = {}
    loop["state_dict"] = loop
    bad_raw("loop", pickle.dumps(loop, 2), "there are no tensors in the dict that was saved")
    bad_raw("deep", b"]" * 2000 + b"a" * 1999 + b".", "what was saved is no dict of tensors")
    bad_raw("deep-marks", b"(" * 3000 + b"N.", "what was saved is no dict of tensors")


def bad_tensors():
    data = np.arange(8, dtype=np.float32)

    def bad_view(name, message, offset=0, shape=(8,), strides=(1,), storage=None):
        bad_bin("tensor-" + name, make_bin({"w": Tensor(storage or Storage(data, "0"), offset, shape, strides)}), "pytorch_model.bin: tensor 'w': " + message)

    unfit = " do not fit its storage of 8 elements"
    bad_view("larger", "shape [9], strides [1] and offset 0" + unfit, shape=(9,))
    bad_view("offset", "shape [8], strides [1] and offset 1" + unfit, offset=1)
    bad_view("offset-huge", "shape [1], strides [1] and offset 4611686018427387904" + unfit, offset=2**62, shape=(1,))
    bad_view("offset-empty", "shape [0], strides [1] and offset 9" + unfit, offset=9, shape=(0,))
    bad_view("offset-negative", "its offset is not a count", offset=-1)
    bad_view("offset-fraction", "its offset is not a count", offset=0.5)
    bad_view("strides", "shape [2, 2], strides [7, 1] and offset 0" + unfit, shape=(2, 2), strides=(7, 1))
    bad_view("strides-wrap", "shape [3], strides [9223372036854775807] and offset 0" + unfit, shape=(3,), strides=(2**63 - 1,))
    bad_view("strides-wrap-sum", "shape [2, 2, 2]", shape=(2, 2, 2), strides=(2**63 - 1, 2**63 - 1, 2))
    bad_view("shape-wraps", "shape [4294967296, 4294967296]", shape=(2**32, 2**32), strides=(0, 0))
    bad_view("expanded", "shape [1000000], strides [0] and offset 0" + unfit, shape=(10**6,), strides=(0,))
    lists = "shape and strides are not two lists of up to 8 counts"
    bad_view("negative-shape", lists, shape=(-1,))
    bad_view("negative-strides", lists, offset=7, strides=(-1,))
    bad_view("ranks-differ", lists, strides=(1, 1))
    bad_view("rank-9", lists, shape=(1,) * 9, strides=(1,) * 9)
    bad_view("shape-text", lists, shape=("8",))
    bad_view("shape-64-bits", "shape [9223372036854775807]", shape=(2**63 - 1,), strides=(0,))
    bad_view("shape-65-bits", lists, shape=(2**64 + 8,))
    bad_view("storage-count", "its storage '0' has 32 bytes, not those of 9 elements", storage=Storage(data, "0", n=9))
    bad_view("storage-dtype", "its storage '0' has 32 bytes, not those of 8 elements", storage=Storage(data, "0", dtype="F64"))
    bad_view("storage-wraps", "its storage '0' has 32 bytes, not those of 4611686018427387912 elements", storage=Storage(data, "0", n=2**62 + 8))
    bad_view("storage-negative", "its storage '0' has 32 bytes, not those of -1 elements", storage=Storage(data, "0", n=-1))
    w = {"w": whole(data, "0")}
    bad_bin("tensor-no-storage", make_zip(bin_entries(w)[:1]), "tensor 'w': its storage '0' is missing")
    other = pickled({"w": whole(data, "x/../../0")})
    bad_bin("tensor-storage-name", make_bin({"w": whole(data, "../0")}, data=other), "tensor 'w': its storage 'x/../../0' is missing")
    bad_bin("tensor-view-of-storage", make_bin(w, view=(("1", 0, 8),)), "tensor 'w': its storage is a view of another one")
    bad_bin("tensor-name-number", make_bin({7: whole(data, "0")}), "a tensor whose name is no text")
    pickle_of_w = pickled(w)
    twice = pickle_of_w[:-1] + pickle_of_w[pickle_of_w.index(b"X\1\0\0\0w"):]
    bad_bin("tensor-twice", make_bin(w, data=twice), "tensor 'w': is there twice")
    bad_bin("tensor-script", make_bin(w, data=b"\x80\x02c__torch__\nModel\n)\x81."), "it asks for __torch__.Model")


def bad_streams():
    data = np.arange(8, dtype=np.float32)
    w = {"w": whole(data, "140")}
    bad_bin("stream-version", make_stream(w, version=1002), "an unknown version of torch.save's stream")
    bad_bin("stream-big-endian", make_stream(w, little=False), "its byte order is not little-endian")
    bad_bin("stream-cut", make_stream(w, cut=1), "storage '140' lies outside the file: truncated?")
    bad_bin("stream-cut-count", make_stream(w, cut=33), "storage '140' lies outside the file: truncated?")
    bad_bin("stream-cut-keys", make_stream(w, cut=41), "pickle: the pickle ends early")
    bad_bin("stream-no-key", make_stream(w, keys=[]), "tensor 'w': its storage '140' is missing")
    bad_bin("stream-count", make_stream(w, counts={"140": 9}), "storage '140' has another size than its tensors expect")
    bad_bin("stream-count-negative", make_stream(w, counts={"140": -1}), "storage '140' has another size than its tensors expect")
    bad_bin("stream-view", make_stream(w, view=(("141", 0, 8),)), "tensor 'w': its storage is a view of another one")
    other = make_stream(w).replace(pickle.dumps(["140"], 2), pickle.dumps(["14\u00e9"], 2))
    bad_bin("stream-other-key", other, "nobody uses storage '14??'")


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
    model("bert-third-layer", BERT, "BertModel", Model().linear(None, "encoder.layer.2.output.dense", (D, F)),
          "tensor 'encoder.layer.2.output.dense.weight' of shape [4, 6] has no known meaning")
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
          Model("roberta.", rows=P + 2, types=1).linear("head.dense", "classifier.dense", (D, D)).linear("head.out", "classifier.out_proj", (1, D)),
          id2label={"0": "x"})
    model("xlmr-words", XLMR, "XLMRobertaForMaskedLM",
          Model("roberta.", rows=P + 2, types=1).linear(None, "lm_head.dense", (D, D)).add(None, "roberta.embeddings.token_type_ids", (1, P + 2), "I64"))


shutil.rmtree(out, ignore_errors=True)
safetensors_cases()
shard_cases()
bin_cases()
model_cases()
with open(os.path.join(out, "cases.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
