"""Tests of sq.py against what C gives: python3 -m unittest. The folder SQ_TEST_DIR (tests/test-bindings.sh makes it) has models, texts and C's results."""

import array
import ctypes
import json
import os
import pickle
import struct
import threading
import time
import unittest

import sq

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
FOLDER = os.environ.get("SQ_TEST_DIR") or os.path.join(TOP, "build", "bindings")


def lines(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def bits(x):
    return struct.pack(">f", x).hex()


def rows_of(vectors):
    return [" ".join(map(bits, vector)) for vector in vectors]


def model(name):
    return sq.Model(os.path.join(FOLDER, name), verify=True)


def bytes_before(text, character):
    return len(text[:character].encode())


TEXTS = lines("texts.txt")


class Same(unittest.TestCase):
    """The same as C, and as Hugging Face."""

    def test_tokenize(self):
        with model("embed.sq") as m:
            for text, expected in zip(TEXTS, lines("tokens.txt")):
                tokens = m.tokenize(text)
                got = (f"{t.id},{t.type},{bytes_before(text, t.start)},{bytes_before(text, t.end)}" for t in tokens)
                self.assertEqual(" ".join(got), expected)

    def test_tokenize_golden(self):
        with model("embed.sq") as m, open(os.path.join(TOP, "tests/golden/bert-64/expected.jsonl"), encoding="utf-8") as file:
            next(file)  # says where the values come from
            for row in map(json.loads, file):
                tokens = m.tokenize(row["a"], row["b"], max_len=sq.NO_LIMIT)
                self.assertEqual([t.id for t in tokens], row["ids"])

    def test_embed(self):
        with model("embed.sq") as m, m.context() as c:
            self.assertEqual(rows_of(c.embed(TEXTS)), lines("embed.txt"))
            self.assertEqual(rows_of(c.embed(TEXTS, dimensions=8)), [" ".join(row.split()[:8]) for row in lines("embed.txt")])
            self.assertEqual(c.embed([]), [])
            (unit,) = c.embed(["a cat"], normalize=sq.NORMALIZE_YES)
            self.assertAlmostEqual(sum(x * x for x in unit), 1, places=5)

    def test_classify(self):
        with model("classify.sq") as m, m.context() as c:
            self.assertEqual(m.labels, ["entailment", "neutral", "contradiction"])
            classes = c.classify(TEXTS)
            self.assertEqual(rows_of(x.scores for x in classes), lines("scores.txt"))
            self.assertEqual(rows_of(x.logits for x in classes), lines("logits.txt"))
            pairs = c.classify(TEXTS, TEXTS[1:] + TEXTS[:1], truncate=True)
            self.assertEqual(rows_of(x.logits for x in pairs), lines("pairs.txt"))
            with self.assertRaises(ValueError):
                c.classify(["a"], [])

    def test_rerank(self):
        with model("score.sq") as m, m.context() as c:
            self.assertEqual([f"{r.document} {bits(r.score)}" for r in c.rerank(TEXTS[0], TEXTS)], lines("rerank.txt"))

    def test_answer(self):
        context = " ".join(TEXTS)
        with model("answer.sq") as m, m.context() as c:
            got = [
                f"{bytes_before(context, a.start)} {bytes_before(context, a.end)} {bits(a.score)} {bits(a.probability)}"
                for a in c.answer(TEXTS[0], context)
            ]
            self.assertEqual(got, lines("answer.txt"))
            self.assertEqual(c.answer("who", ""), [])
            self.assertIn((0, 0), [(a.start, a.end) for a in c.answer("who", "a cat", allow_null=True)])

    def test_tag(self):
        with model("tag.sq") as m, m.context() as c:
            for name, words in ("tag.txt", False), ("words.txt", True):
                got = [
                    f"{e.text} {bytes_before(TEXTS[e.text], e.start)} {bytes_before(TEXTS[e.text], e.end)} {e.words} {bits(e.score)} {e.label}"
                    for e in c.tag(TEXTS, words=words)
                ]
                self.assertEqual(got, lines(name))
            self.assertEqual(len(c.tag(["a " * 60], words=True)), 60)  # more than the first buffer holds


class Texts(unittest.TestCase):
    def test_lone_surrogates(self):
        with model("embed.sq") as m, m.context() as c:
            got = rows_of(c.embed(["a\ud800cat\udfff\udfff", "a\ufffdcat\ufffd\ufffd", "a\0cat", "a cat"]))
            self.assertEqual(got[0], got[1])
            text = "\ud800 \U0001f415 dog"
            self.assertIn("dog", [text[t.start : t.end] for t in m.tokenize(text)])

    def test_long(self):
        with model("embed.sq") as m, m.context() as c:
            long = "dog " * 5000
            with self.assertRaisesRegex(sq.Error, "5002 tokens") as caught:
                c.embed(["a", long])
            self.assertEqual(caught.exception.status, sq.LIMIT)
            with self.assertRaisesRegex(sq.Error, "5002 tokens"):
                m.tokenize(long)
            self.assertEqual(*rows_of(c.embed([long, "dog " * 62], truncate=True)))
            self.assertEqual(len(m.tokenize(long, max_len=sq.NO_LIMIT)), 5002)


class Structs(unittest.TestCase):
    def test_layout(self):
        """Sizes and offsets as the compiler of sq.h has them."""
        kinds = {"sq_model_params": sq._ModelParams, "sq_model_info": sq._ModelInfo, "sq_ctx_params": sq._CtxParams}
        kinds |= {"sq_texts": sq._Texts, "sq_answer_span": sq._AnswerSpan, "sq_entity": sq._Entity}
        got = []
        for name, kind in kinds.items():
            offsets = [getattr(kind, field).offset for field, _ in kind._fields_]
            got.append(" ".join(map(str, [name, ctypes.sizeof(kind), *offsets])))
        self.assertEqual(got, lines("structs.txt"))


class Errors(unittest.TestCase):
    def fails(self, status, call, text=""):
        with self.assertRaisesRegex(sq.Error, text) as caught:
            call()
        self.assertEqual(caught.exception.status, status)

    def test_errors(self):
        self.fails(sq.IO, lambda: sq.Model("no/such/file.sq"), "no/such/file.sq")
        self.fails(sq.FORMAT, lambda: model("texts.txt"))
        self.fails(sq.CPU, lambda: sq.Model(os.path.join(FOLDER, "embed.sq"), isa="abacus"), "abacus")
        for nul in {"path": "embed.sq\0"}, {"path": "embed.sq", "isa": "avx2\0"}:
            self.assertRaises(ValueError, lambda: sq.Model(**nul))
        with model("embed.sq") as m, m.context() as c:
            self.fails(sq.TASK, lambda: c.classify(["a"]), "no head")
            self.fails(sq.ARG, lambda: c.embed(["a"], dimensions=65))
            for number in -1, 2**32 + 8:
                self.assertRaises(OverflowError, lambda: c.embed(["a"], dimensions=number))
            self.assertRaises(TypeError, lambda: c.embed("not a list"))
            self.assertRaises(AttributeError, lambda: c.embed([b"not a str"]))
            self.assertEqual(rows_of(c.embed(iter(TEXTS))), lines("embed.txt"))  # and the context is free again
            self.fails(sq.LIMIT, lambda: m.context(max_tokens=0xFFFFFFFF))

    def test_pickled(self):
        error = pickle.loads(pickle.dumps(sq.Error(sq.LIMIT, "too long")))
        self.assertEqual((error.status, str(error)), (sq.LIMIT, "too long"))
        self.assertTrue(str(sq.Error(sq.MEM)))

    def test_forgotten(self):
        """What nobody closed goes when nothing refers to it, a context's workers with it."""
        threads = len(os.listdir("/proc/self/task"))
        c = model("embed.sq").context(threads=3)
        self.assertEqual(rows_of(c.embed(TEXTS)), lines("embed.txt"))
        self.assertEqual(len(os.listdir("/proc/self/task")), threads + 2)
        del c
        self.assertEqual(len(os.listdir("/proc/self/task")), threads)

    def test_close(self):
        m = model("embed.sq")
        c = m.context()
        with m._use():  # as every call does
            self.fails(sq.BUSY, m.close)
        m.close()
        m.close()  # which does nothing
        self.fails(sq.CLOSED, lambda: m.tokenize("a"))
        self.fails(sq.CLOSED, m.context)
        self.assertEqual(rows_of(c.embed(TEXTS[:1])), lines("embed.txt")[:1])
        c.close()
        c.cancel()
        c.close()
        self.fails(sq.CLOSED, lambda: c.embed(["a"]))

    def test_close_while_running(self):
        with model("embed.sq") as m:
            c = m.context()
            statuses = []

            def run():
                statuses.append(sq.BUSY)
                while statuses[-1] == sq.BUSY:  # by the short calls below
                    try:
                        c.embed([""] * 100_000)  # takes seconds
                    except sq.Error as error:
                        statuses.append(error.status)

            thread = threading.Thread(target=run)
            thread.start()
            is_busy = False
            while not is_busy:
                time.sleep(0.001)
                try:
                    c.embed(["a"])
                except sq.Error as error:
                    is_busy = error.status == sq.BUSY
            self.fails(sq.BUSY, c.close)
            while thread.is_alive():
                c.cancel()  # before the call has reached the library it has no effect
                time.sleep(0.001)
            self.assertEqual(statuses[-1], sq.CANCEL)
            c.close()


class Threads(unittest.TestCase):
    """Many threads at once."""

    def run_all(self, n, work):
        failed = []

        def guarded(i):
            try:
                work(i)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def test_pool(self):
        expected = lines("embed.txt")
        with model("embed.sq") as m:
            pool = sq.Pool(m, 2, threads=1)

            def work(i):
                for j in range(20):
                    first = (i + j) % len(TEXTS)
                    with pool.lend() as c:
                        self.assertEqual(rows_of(c.embed(TEXTS[first:])), expected[first:])

            self.run_all(16, work)
            with pool.lend() as c:
                with self.assertRaises(sq.Error) as caught:
                    pool.close()
                self.assertEqual(caught.exception.status, sq.BUSY)
                with pool.lend():
                    with self.assertRaises(TimeoutError):
                        with pool.lend(timeout=0.01):
                            pass
            pool.close()
            pool.close()
            for use in lambda: pool.lend().__enter__(), lambda: c.embed(["a"]):
                with self.assertRaises(sq.Error) as caught:
                    use()
                self.assertEqual(caught.exception.status, sq.CLOSED)

    def test_one_context(self):
        """Each call either gives the right bits or is refused."""
        expected = lines("embed.txt")
        with model("embed.sq") as m, m.context(threads=1) as c:

            def work(_):
                for i in range(100):
                    try:
                        got = rows_of(c.embed([TEXTS[i % len(TEXTS)]]))
                    except sq.Error as error:
                        self.assertEqual(error.status, sq.BUSY)
                    else:
                        self.assertEqual(got, [expected[i % len(TEXTS)]])

            self.run_all(8, work)

    def test_vectors_are_arrays(self):
        with model("embed.sq") as m, m.context() as c:
            (vector,) = c.embed(["a"])
            self.assertIsInstance(vector, array.array)
            self.assertEqual((vector.typecode, len(vector)), ("f", m.embed_width))


if __name__ == "__main__":
    unittest.main()
