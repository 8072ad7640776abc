"""sq runs BERT, DistilBERT and XLM-RoBERTa in INT8 on CPUs, through the C library of that name. One file, the standard library alone.

    with sq.Model("minilm.sq") as model, sq.Pool(model, 4, threads=1) as pool, pool.lend() as context:
        vectors = context.embed(["A man is eating.", "Someone has lunch."])

A Model may be used by any number of threads. A Context computes, for one thread at a time; a Pool lends contexts to as many threads as there are. Python's
interpreter lock is free while the library computes, so that threads run side by side.

Each of the three is closed by close() or the end of its `with`, or else when nothing refers to it any more. Closing while a call runs is Error with status BUSY
and changes nothing; closing once more does nothing; use after close is Error with status CLOSED.

Texts are str. A lone surrogate, which has no form in UTF-8, counts as one U+FFFD. Offsets into texts count characters, as in Python's slices. Vectors, scores
and logits are array.array('f'): numpy.frombuffer(vector, numpy.float32) takes one without a copy. Their bits are those of the C program, in any context,
beside any other texts.

The library is found by the environment variable SQ_LIBRARY (a path), in the top folder of sq's sources, or by the system's linker.
"""

import array
import codecs
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import threading
import weakref
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p

# ---- status ----

OK, ARG, IO, FORMAT, VERSION, CPU, MEM, SPACE, LIMIT, TASK, INTERNAL, BUSY, NUMERIC, CANCEL = range(0, -14, -1)
CLOSED = 1  # of this module: used after close()

ABI_VERSION = 1  # of the sq.h that this module was written for


class Error(Exception):
    """A failed call: `status` is one of the codes above, the text is the library's sentence about the cause."""

    def __init__(self, status, text=""):
        super().__init__(status, text or _lib.sq_status_string(status).decode())  # all of them, so that it can be pickled
        self.status = status

    def __str__(self):
        return self.args[1]


# ---- the library ----


class _Sized(ctypes.Structure):
    """A struct of sq.h that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), **fields)


class _ModelParams(_Sized):
    _fields_ = [("size", c_uint32), ("copy", c_uint32), ("verify", c_uint32), ("huge_pages", c_uint32), ("isa", c_char_p)]


class _ModelInfo(_Sized):
    _numbers = "layers width heads ffn_width vocab_size types max_tokens max_positions pooling normalize quant head labels multi_label embed_width"
    _fields_ = [("size", c_uint32)] + [(name, c_uint32) for name in _numbers.split()] + [("file_bytes", c_size_t), ("params", c_size_t)]


class _CtxParams(_Sized):
    _fields_ = [
        ("size", c_uint32), ("n_threads", c_uint32), ("max_tokens", c_uint32), ("max_seqs", c_uint32),
        ("cpus", POINTER(c_int32)), ("spin_us", c_uint32), ("no_tuning", c_uint32), ("tuning", c_char_p),
    ]  # fmt: skip


class _Texts(_Sized):
    _fields_ = [
        ("size", c_uint32), ("n_texts", c_uint32), ("a", c_char_p), ("a_starts", c_void_p), ("b", c_char_p), ("b_starts", c_void_p)
    ]  # fmt: skip


class _AnswerSpan(ctypes.Structure):
    _fields_ = [("start", c_size_t), ("end", c_size_t), ("score", c_float), ("probability", c_float)]


class _Entity(ctypes.Structure):
    _fields_ = [
        ("text", c_uint32), ("label", c_uint32), ("start", c_size_t), ("end", c_size_t), ("score", c_float), ("n_words", c_uint32)
    ]  # fmt: skip


@functools.lru_cache
def _numbers(*fields):
    """A parameter struct that is its size and other numbers of 32 bits. Calls only read it, and the usual few are made once."""
    return array.array("I", (4 * (1 + len(fields)), *fields)).tobytes()


def _c_string(text):
    """Bytes that C reads to the first NUL, and that have none before."""
    if b"\0" in text:
        raise ValueError("there is a NUL in a name")
    return text


def _find_library():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "libsq.so")
    return os.environ.get("SQ_LIBRARY") or (beside if os.path.exists(beside) else "libsq.so.0")


def _load_library():
    lib = ctypes.CDLL(_find_library())
    handle, size_out, address = c_void_p, POINTER(c_size_t), c_void_p
    signatures = {
        "sq_abi_version": (c_int32, []),
        "sq_version_string": (c_char_p, []),
        "sq_status_string": (c_char_p, [c_int32]),
        "sq_model_load": (c_int32, [c_char_p, POINTER(_ModelParams), POINTER(handle), c_char_p, c_size_t]),
        "sq_model_free": (None, [handle]),
        "sq_model_get_info": (c_int32, [handle, POINTER(_ModelInfo)]),
        "sq_model_label": (c_char_p, [handle, c_uint32, size_out]),
        "sq_isa_string": (c_char_p, [handle]),
        "sq_tokenize": (
            c_int32,
            [handle, c_char_p, c_size_t, c_char_p, c_size_t, c_char_p, address, address, address, address, c_size_t, size_out],
        ),
        "sq_ctx_create": (c_int32, [handle, POINTER(_CtxParams), POINTER(handle), c_char_p, c_size_t]),
        "sq_ctx_free": (None, [handle]),
        "sq_ctx_cancel": (None, [handle]),
        "sq_ctx_error": (c_char_p, [handle]),
        "sq_embed": (c_int32, [handle, address, c_char_p, address, c_size_t, address]),
        "sq_classify": (c_int32, [handle, address, c_char_p, address, address, c_size_t, address]),
        "sq_rerank": (c_int32, [handle, c_char_p, c_size_t, address, c_char_p, address, address, c_size_t, address]),
        "sq_answer": (c_int32, [handle, c_char_p, c_size_t, c_char_p, c_size_t, c_char_p, POINTER(_AnswerSpan), c_size_t, address]),
        "sq_tag": (c_int32, [handle, address, c_char_p, POINTER(_Entity), c_size_t, address]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


_lib = _load_library()
if _lib.sq_abi_version() < ABI_VERSION:
    raise ImportError(f"the library has ABI version {_lib.sq_abi_version()}, and this module needs {ABI_VERSION}")


def library_version():
    """MAJOR.MINOR.PATCH of the library that is running."""
    return _lib.sq_version_string().decode()


# ---- texts ----


def _replace_surrogates(error):
    return "\ufffd".encode() * (error.end - error.start), error.end


codecs.register_error("sq.replace", _replace_surrogates)


def _utf8(text):
    return text.encode("utf-8", "sq.replace")


class _Batch:
    """An sq_texts that is kept from call to call, and what it points to."""

    def __init__(self):
        self._struct = _Texts()
        self.address = ctypes.addressof(self._struct)

    def fill(self, texts, second=None):
        """Takes single texts or pairs; returns how many."""
        struct = self._struct
        struct.a, self._starts, n = self._laid(texts)
        struct.a_starts, struct.n_texts = self._starts.buffer_info()[0], n
        struct.b = struct.b_starts = None
        if second is not None:
            struct.b, self._second_starts, n_second = self._laid(second)
            struct.b_starts = self._second_starts.buffer_info()[0]
            if n_second != n:
                raise ValueError("both texts of each pair are needed")
        return n

    @staticmethod
    def _laid(texts):
        """Texts end to end, and where each begins."""
        if isinstance(texts, str):
            raise TypeError("a list of texts is needed, not one text")
        parts = [text.encode("utf-8", "sq.replace") for text in texts]
        return b"".join(parts), array.array("Q", [0, *itertools.accumulate(map(len, parts))]), len(parts)


_CONTINUING = bytes(range(0x80, 0xC0))  # the bytes of UTF-8 that begin no character


class _Characters:
    """Turns offsets into a text's UTF-8 into offsets into the text. Asked in rising order, it reads the text once."""

    def __init__(self, utf8):
        self._utf8, self._byte, self._character = utf8, 0, 0

    def at(self, byte):
        if byte < self._byte:
            self._byte = self._character = 0
        self._character += len(self._utf8[self._byte : byte].translate(None, _CONTINUING))
        self._byte = byte
        return self._character


_ZERO = array.array("f", [0])  # _ZERO * n is room for n floats


def _rows(values, n):
    """Cuts a matrix into its n rows."""
    if n == 1:
        return [values]
    width = len(values) // n if n else 0
    return [values[i * width : (i + 1) * width] for i in range(n)]


# ---- model ----

HEAD_NONE, HEAD_CLASSIFY, HEAD_ANSWER, HEAD_TAG = range(4)
POOL_MODEL, POOL_MEAN, POOL_CLS, POOL_MAX = range(4)
NORMALIZE_MODEL, NORMALIZE_YES, NORMALIZE_NO = range(3)
NO_LIMIT = 0xFFFFFFFF  # as max_len: texts may be as long as the position table allows


@dataclasses.dataclass(frozen=True)
class Token:
    id: int
    type: int  # segment
    start: int  # characters of the text it came from; 0, 0 for special tokens that sq added
    end: int
    source: int  # 0: the first text, 1: the second, -1: a special token that sq added


class Model:
    """A model file, mapped. Any number of threads may use it at once.

    path: the file. copy: read it into private memory, so that later changes to it cannot reach this process. verify: check every tensor's checksum. isa: the
    highest instruction set to use, such as "avx2".
    """

    def __init__(self, path, *, copy=False, verify=False, huge_pages=False, isa=None):
        self._lock = threading.Lock()  # of the next two
        self._calls = 0  # under way
        self._handle = None  # None after close()
        handle, text = c_void_p(), ctypes.create_string_buffer(256)
        params = _ModelParams(copy=copy, verify=verify, huge_pages=huge_pages, isa=isa and _c_string(isa.encode()))
        status = _lib.sq_model_load(_c_string(os.fsencode(path)), byref(params), byref(handle), text, len(text))
        if status != OK:
            raise Error(status, text.value.decode("utf-8", "replace"))
        self._handle = handle
        self._free = weakref.finalize(self, _lib.sq_model_free, handle)
        self._free.atexit = False  # other threads may still be at work then
        self._describe()

    def _describe(self):
        info = _ModelInfo()
        _lib.sq_model_get_info(self._handle, byref(info))
        self.layers, self.width, self.embed_width = info.layers, info.width, info.embed_width
        self.max_tokens, self.max_positions, self.vocab_size = info.max_tokens, info.max_positions, info.vocab_size
        self.head, self.multi_label, self.normalize = info.head, bool(info.multi_label), bool(info.normalize)
        self.isa = _lib.sq_isa_string(self._handle).decode()
        names = [_lib.sq_model_label(self._handle, i, byref(c_size_t())) for i in range(info.labels)]
        self.labels = [name.decode("utf-8", "replace") for name in names if name is not None]
        self.n_logits = info.labels  # of a text or a token; an answer head has two without names

    @contextlib.contextmanager
    def _use(self):
        """The handle, which is not freed meanwhile."""
        with self._lock:
            if self._handle is None:
                raise Error(CLOSED, "the model is used after close()")
            self._calls += 1
        try:
            yield self._handle
        finally:
            with self._lock:
                self._calls -= 1

    def tokenize(self, text, second=None, *, max_len=0, truncate=False, specials_as_text=False):
        """The tokens of a text or a pair, special tokens around them."""
        a, b = _utf8(text), None if second is None else _utf8(second)
        params = _numbers(max_len, truncate, specials_as_text)
        capacity, n = min(16 + (len(a) + len(b or b"")) // 2, max_len or self.max_tokens), c_size_t()  # longer texts are cut or refused
        with self._use() as handle:
            while True:
                ids, types, sources = ((c_int32 * capacity)() for _ in range(3))
                spans = (c_uint32 * (2 * capacity))()
                status = _lib.sq_tokenize(handle, a, len(a), b, len(b or b""), params, ids, types, spans, sources, capacity, byref(n))
                if status != SPACE:
                    break
                capacity = n.value
        if status == LIMIT:
            raise Error(status, f"{_lib.sq_status_string(status).decode()}: {n.value} tokens")
        if status != OK:
            raise Error(status)
        characters = {0: _Characters(a), 1: _Characters(b or b""), -1: _Characters(b"")}
        place = [characters[sources[i]].at for i in range(n.value)]
        return [Token(ids[i], types[i], place[i](spans[2 * i]), place[i](spans[2 * i + 1]), sources[i]) for i in range(n.value)]

    def context(self, *, threads=0, max_tokens=0, max_texts=0, no_tuning=False):
        """A new Context. It outlives the model's close()."""
        return Context(self, threads=threads, max_tokens=max_tokens, max_texts=max_texts, no_tuning=no_tuning)

    def close(self):
        """Frees the model. Error with status BUSY while a call runs; contexts do not count, they hold what they need."""
        with self._lock:
            if self._calls:
                raise Error(BUSY, "the model is in use by another call")
            self._handle = None
            self._free()  # once

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- context ----


@dataclasses.dataclass(frozen=True)
class Classes:
    scores: array.array  # softmax of the logits; sigmoids for a multi-label model and for one label
    logits: array.array


@dataclasses.dataclass(frozen=True)
class Ranked:
    document: int  # its index
    score: float


@dataclasses.dataclass(frozen=True)
class Answer:
    start: int  # characters of the context
    end: int
    score: float
    probability: float


@dataclasses.dataclass(frozen=True)
class Entity:
    text: int  # index of the text
    label: str
    start: int  # characters of the text
    end: int
    score: float
    words: int


class _Turn:
    """`with` it, one thread has the context, and gets the library's handle. It waits for nobody."""

    __slots__ = "lock", "handle"

    def __init__(self):
        self.lock = threading.Lock()
        self.handle = None  # before the context is made, and after close()

    def __enter__(self):
        if not self.lock.acquire(False):
            raise Error(BUSY, "the context is in use by another call")
        if self.handle is None:
            self.lock.release()
            raise Error(CLOSED, "the context is used after close()")
        return self.handle

    def __exit__(self, *_):
        self.lock.release()


class Context:
    """Computes, for one thread at a time: a second call while one runs is Error with status BUSY. cancel() may be called at any time.

    threads: that compute, the caller's included; 0: the physical cores that the process may use. max_tokens, max_texts: the most that run together.
    """

    _MOST_ANSWERS = 21  # the library finds the 20 best, and "no answer"
    _TAG_WORDS = 1

    def __init__(self, model, *, threads=0, max_tokens=0, max_texts=0, no_tuning=False):
        self._labels, self._embed_width, self._n_logits = model.labels, model.embed_width, model.n_logits
        self._turn = _Turn()  # of every call, and of close()
        self._freeing = threading.Lock()  # held by cancel(), and by close() while it frees; always taken last
        self._batch, self._n = _Batch(), c_size_t()  # the calls' arguments
        self._n_address = ctypes.addressof(self._n)
        handle, text = c_void_p(), ctypes.create_string_buffer(256)
        params = _CtxParams(n_threads=threads, max_tokens=max_tokens, max_seqs=max_texts, no_tuning=no_tuning)
        with model._use() as of_model:
            status = _lib.sq_ctx_create(of_model, byref(params), byref(handle), text, len(text))
        if status != OK:
            raise Error(status, text.value.decode("utf-8", "replace"))
        self._turn.handle = handle.value
        self._free = weakref.finalize(self, _lib.sq_ctx_free, handle)
        self._free.atexit = False  # other threads may still be at work then

    def embed(self, texts, *, pooling=POOL_MODEL, normalize=NORMALIZE_MODEL, dimensions=0, max_len=0, truncate=False, specials_as_text=False):
        """A vector for each text. Any number of texts; they run in batches that fit the context."""
        params = _numbers(pooling, normalize, dimensions, max_len, truncate, specials_as_text, 0)
        width = min(dimensions or self._embed_width, self._embed_width)
        with self._turn as handle:
            n = self._batch.fill(texts)
            values = _ZERO * (n * width)
            self._check(_lib.sq_embed(handle, self._batch.address, params, values.buffer_info()[0], n * width, self._n_address))
        return _rows(values, n)

    def classify(self, texts, second=None, *, max_len=0, truncate=False, specials_as_text=False):
        """Classes for each text, or for each pair (texts[i], second[i]), in the order of the model's labels."""
        params = _numbers(max_len, truncate, specials_as_text)
        with self._turn as handle:
            n = self._batch.fill(texts, second)
            scores, logits = _ZERO * (n * self._n_logits), _ZERO * (n * self._n_logits)
            addresses = scores.buffer_info()[0], logits.buffer_info()[0]
            self._check(_lib.sq_classify(handle, self._batch.address, params, *addresses, len(scores), self._n_address))
        return [Classes(*both) for both in zip(_rows(scores, n), _rows(logits, n))]

    def rerank(self, query, documents, *, max_len=0, truncate=False, specials_as_text=False):
        """The documents by how well they answer the query, the best first, from a classifier of one label."""
        question, params = _utf8(query), _numbers(max_len, truncate, specials_as_text)
        with self._turn as handle:
            n = self._batch.fill(documents)
            scores, order = _ZERO * n, array.array("I", [0]) * n
            addresses = scores.buffer_info()[0], order.buffer_info()[0]
            self._check(_lib.sq_rerank(handle, question, len(question), self._batch.address, params, *addresses, n, self._n_address))
        return [Ranked(document, scores[document]) for document in order]

    def answer(self, question, context, *, window=0, stride=0, max_answer=0, allow_null=False, specials_as_text=False):
        """The answers to a question in a context of any length, the best first. "No answer" is start = end = 0."""
        q, text, spans = _utf8(question), _utf8(context), (_AnswerSpan * self._MOST_ANSWERS)()
        params = _numbers(window, stride, max_answer, allow_null, specials_as_text)
        with self._turn as handle:
            self._check(_lib.sq_answer(handle, q, len(q), text, len(text), params, spans, len(spans), self._n_address))
            n = self._n.value
        place = _Characters(text).at
        return [Answer(place(s.start), place(s.end), s.score, s.probability) for s in spans[:n]]

    def tag(self, texts, *, words=False, max_len=0, truncate=False, specials_as_text=False):
        """The entities of texts, in their order; with words, an entry for each word, label "O" included."""
        texts = list(texts)
        params = _numbers(self._TAG_WORDS if words else 0, max_len, truncate, specials_as_text, 0)
        with self._turn as handle:
            n, status = 16 * (self._batch.fill(texts) + 1), SPACE
            while status == SPACE:
                found = (_Entity * n)()
                status = _lib.sq_tag(handle, self._batch.address, params, found, len(found), self._n_address)
                n = self._n.value
            self._check(status)
        entities = []
        for text, group in itertools.groupby(found[:n], key=lambda e: e.text):
            place = _Characters(_utf8(texts[text])).at
            entities += [Entity(text, self._labels[e.label], place(e.start), place(e.end), e.score, e.n_words) for e in group]
        return entities

    def _check(self, status):
        if status != OK:
            raise Error(status, _lib.sq_ctx_error(self._turn.handle).decode("utf-8", "replace"))

    def cancel(self):
        """Makes the call that runs end with status CANCEL soon; a call that has not reached the library yet goes on. Any thread, any time."""
        with self._freeing:
            if self._turn.handle is not None:
                _lib.sq_ctx_cancel(self._turn.handle)

    def close(self):
        """Stops the workers and frees the context. Error with status BUSY while a call runs."""
        if self._free.alive:
            with self._turn, self._freeing:
                self._turn.handle = None
                self._free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- pool ----


class Pool:
    """n contexts of a model, lent to any number of threads. Many contexts of one thread give the most texts a second. Options as for Context."""

    def __init__(self, model, n, **options):
        self._changed = threading.Condition()  # and the lock of the next two
        self._free = []  # contexts that are not lent
        self._closed = False
        self._n = max(n, 1)
        while len(self._free) < self._n:
            self._free.append(Context(model, **options))

    @contextlib.contextmanager
    def lend(self, timeout=None):
        """A context that is the caller's for the length of a `with`. Waits for one, at most timeout seconds: then TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free or self._closed, timeout):
                raise TimeoutError("all contexts of the pool are lent")
            if self._closed:
                raise Error(CLOSED, "the pool is used after close()")
            context = self._free.pop()
        try:
            yield context
        finally:
            with self._changed:
                self._free.append(context)
                self._changed.notify()

    def close(self):
        """Closes all contexts. Error with status BUSY while one is lent, and then nothing is closed."""
        with self._changed:
            if self._closed:
                return
            if len(self._free) < self._n:
                raise Error(BUSY, "a context of the pool is in use")
            self._closed = True
            self._changed.notify_all()
            with contextlib.ExitStack() as all_of_them:
                for context in self._free:
                    all_of_them.callback(context.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
