"""Tests of embed.py against the `sq` command: python3 -m unittest, by tests/test-spark.sh.

The folder SQ_TEST_DIR has model.sq, and takes what is written. SQ is the path of the command, SPARK_HOME the folder of Spark.
"""

import contextlib
import glob
import io
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest
import unittest.mock

import numpy
import pyarrow
import pyarrow.parquet

import embed
import proc

HERE = os.path.dirname(os.path.abspath(__file__))
BINDING = os.path.join(HERE, "..", "python", "sq.py")
FOLDER = os.environ["SQ_TEST_DIR"]
MODEL = os.path.join(FOLDER, "model.sq")

N_ROWS, N_TASKS = 2400, 24
ODD = [None, "", " ", "a\nb", "a\0b", "caf\u00e9 \U0001f415 \u65e5\u672c\u8a9e", "[CLS] [SEP]", "dog " * 1000, None]


def make_texts():
    """N_ROWS texts, all different but the odd ones, which lie apart."""
    words = random.Random(1)
    texts = [f"{i} " + " ".join(words.choices("the a dog cat sleeps under old red house by river and".split(), k=60)) for i in range(N_ROWS)]
    for i, text in enumerate(ODD):
        texts[i * (N_ROWS // len(ODD))] = text
    return texts


def write_parquet(path, texts, n_files):
    """Rows 0, 1, 2... of texts, in files of equal length."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    table = pyarrow.table({"id": range(len(texts)), "text": texts})
    for i in range(n_files):
        first, end = i * len(texts) // n_files, (i + 1) * len(texts) // n_files
        pyarrow.parquet.write_table(table.slice(first, end - first), os.path.join(path, f"{i}.parquet"))


def embed_by_sq(texts):
    """float32 [texts][width], from one process of the C program."""
    lines, vectors = os.path.join(FOLDER, "texts.jsonl"), os.path.join(FOLDER, "vectors.npy")
    with open(lines, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"a": text}) + "\n" for text in texts)
    command = [os.environ["SQ"], "embed", "-m", MODEL, "--truncate", "--threads", "1", "--jsonl", lines, "--format", "npy", "-o", vectors]
    subprocess.run(command, check=True)
    return numpy.load(vectors)


# ---- the job in processes of its own ----


class Job:
    """embed.py under spark-submit with two executors of one core, events logged."""

    def __init__(self, name, *arguments):
        self.output, self._events, self._log = (os.path.join(FOLDER, name + kind) for kind in (".parquet", ".events", ".log"))
        for folder in (self.output, self._events):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self._events)
        settings = {
            "spark.ui.enabled": "false",
            "spark.network.timeout": "600s",  # a busy machine loses nothing; what is killed is noticed at once, by its closed connection
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": "file://" + self._events,
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        submit = [os.path.join(os.environ["SPARK_HOME"], "bin", "spark-submit"), "--master", "local-cluster[2,1,1024]", "--py-files", BINDING]
        for setting in settings.items():
            submit += ["--conf", "=".join(setting)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*submit, os.path.join(HERE, "embed.py"), "--model", MODEL, "--output", self.output, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()  # if it is still there; executors follow
        self._process.wait()

    def succeed(self):
        """Waits for the end. What Spark keeps of the executors of a failed job stays in its folder `work`."""
        if self._process.wait(timeout=3600) != 0:
            with open(self._log, encoding="utf-8", errors="replace") as log:
                raise AssertionError("the job failed:\n" + "".join(log.readlines()[-40:]))
        shutil.rmtree(os.path.join(os.environ["SPARK_HOME"], "work", os.path.basename(self._event_log())))

    def committed_tasks(self):
        return len(glob.glob(os.path.join(self.output, "_temporary", "0", "task_*")))

    def workers(self):
        """Process ids of the Python workers that compute, each with that of its executor."""
        return [(worker, executor) for executor in proc.children(self._process.pid) for worker in proc.descendants(executor) if maps_model(worker)]

    def wait_for_work(self, n_committed):
        """Waits until so many tasks are committed and both executors compute; what workers() says then."""
        while self._process.poll() is None:
            workers = self.workers()
            if self.committed_tasks() >= n_committed and len({executor for _, executor in workers}) == 2:
                return workers
            time.sleep(0.05)
        raise AssertionError("the job ended before it could be disturbed")

    def _event_log(self):
        (path,) = glob.glob(os.path.join(self._events, "*"))  # its name is the application's
        return path

    def task_ends(self):
        """Why each attempt of a task ended."""
        with open(self._event_log(), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        return [event["Task End Reason"]["Reason"] for event in events if event["Event"] == "SparkListenerTaskEnd"]


def maps_model(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as file:
        return MODEL in file.read()
    return False


def private_kib(pid):
    """KiB of the model's mapping that are this process's own, and of those that it has touched."""
    private = resident = 0
    of_model = False
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            if "-" in line.split(" ")[0]:
                of_model = MODEL in line
            elif of_model and line.startswith("Private_Dirty:"):
                private += int(line.split()[1])
            elif of_model and line.startswith("Rss:"):
                resident += int(line.split()[1])
    return private, resident


class Lost(unittest.TestCase):
    """Each row comes out once, with the bits that one process gives, whatever is lost on the way."""

    @classmethod
    def setUpClass(cls):
        cls.texts = make_texts()
        cls.input = os.path.join(FOLDER, "texts.parquet")
        write_parquet(cls.input, cls.texts, 4)
        cls.expected = embed_by_sq([text for text in cls.texts if text is not None])
        assert len({vector.tobytes() for vector in cls.expected}) > N_ROWS - len(ODD), "rows must differ, or a mix-up would not be seen"

    def start(self, name):
        return Job(name, "--input", self.input, "--truncate", "--tasks", str(N_TASKS), "--batch", "64")

    def check(self, output):
        self.assertTrue(os.path.exists(os.path.join(output, "_SUCCESS")))
        self.assertFalse(os.path.exists(os.path.join(output, "_temporary")))
        table = pyarrow.parquet.read_table(output).sort_by("id")
        self.assertEqual(table["id"].to_pylist(), list(range(N_ROWS)))
        self.assertEqual(table["text"].to_pylist(), self.texts)
        self.assertEqual([x.is_valid for x in table["embedding"]], [text is not None for text in self.texts])
        vectors = numpy.stack([x.values.to_numpy() for x in table["embedding"] if x.is_valid])
        self.assertEqual(vectors.dtype, numpy.float32)
        self.assertTrue(numpy.array_equal(vectors.view(numpy.uint32), self.expected.view(numpy.uint32)))

    def test_nothing(self):
        with self.start("nothing") as job:
            for worker, _ in job.wait_for_work(2):
                private, resident = private_kib(worker)
                self.assertEqual(private, 0)
                self.assertGreater(resident, 0)
            job.succeed()
            self.assertEqual(set(job.task_ends()), {"Success"})
        self.check(job.output)

    def disturb(self, name, victim, reason):
        """victim(worker, executor): the process to kill while the worker is in the middle of a task."""
        with self.start(name) as job:
            while True:
                worker, executor = job.wait_for_work(4)[0]
                os.kill(worker, signal.SIGSTOP)  # what maps the model now has a task that it cannot end
                if maps_model(worker):
                    break
                os.kill(worker, signal.SIGCONT)
            self.assertLess(job.committed_tasks(), N_TASKS - 4)
            os.kill(victim(worker, executor), signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
            job.succeed()
            self.assertIn(reason, job.task_ends())
        self.check(job.output)

    def test_executor(self):
        self.disturb("executor", lambda worker, executor: executor, "ExecutorLostFailure")

    def test_worker(self):
        self.disturb("worker", lambda worker, executor: worker, "ExceptionFailure")


# ---- in this process ----


class Memory(unittest.TestCase):
    def test_one_batch_at_a_time(self):
        """A batch comes out before the next is taken, so that a task of any length needs the memory of one."""
        n_taken = 0

        def batches():
            nonlocal n_taken
            for n_taken in range(1, 4):
                yield pyarrow.record_batch({"id": ["x", "y"], "text": ["a cat", None]})

        with unittest.mock.patch("embed.TaskContext.get") as get:
            get.return_value.cpus.return_value = 1
            for i, batch in enumerate(embed.embed_batches(batches(), MODEL, "", False), 1):
                self.assertEqual(n_taken, i)
                self.assertEqual(batch.schema.names, ["id", "text", "embedding"])
        self.assertEqual(n_taken, 3)


class Errors(unittest.TestCase):
    """What is wrong is said in one line."""

    @classmethod
    def setUpClass(cls):
        os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false --conf spark.log.level=OFF --conf spark.ui.showConsoleProgress=false pyspark-shell"
        cls.input, cls.output = os.path.join(FOLDER, "few.parquet"), os.path.join(FOLDER, "few-vectors.parquet")
        write_parquet(cls.input, ["a", None, "dog " * 1000], 1)

    def setUp(self):
        shutil.rmtree(self.output, ignore_errors=True)

    def run_main(self, *arguments, model=MODEL):
        embed.main(["--model", model, "--input", self.input, "--output", self.output, "--tasks", "2", *arguments])

    def refused(self, pattern, *arguments, **options):
        with self.assertRaises(SystemExit) as caught:
            self.run_main(*arguments, **options)
        self.assertRegex(caught.exception.code, f"^embed: .*{pattern}.*$")

    def test_usage(self):
        for arguments in (["--tasks", "0"], ["--batch", "0"], ["--batch", "65537"], ["--id", "text"], ["--text", "embedding"], ["--nonsense"]):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                self.run_main(*arguments)
            self.assertEqual(caught.exception.code, 2)

    def test_model(self):
        self.refused("none.sq: No such file", model="none.sq")
        self.refused("not a sq model file", model=__file__)

    def test_input(self):
        self.refused("Path does not exist: .*none.parquet", "--input", os.path.join(FOLDER, "none.parquet"))
        self.refused("no column body; it has id, text", "--text", "body")
        self.refused("column id .* is bigint, not string", "--text", "id", "--id", "text")
        self.refused("test_embed.py.* Parquet", "--input", __file__)

    def test_too_long(self):
        self.refused("row 2: .* has 1002 tokens")
        self.assertFalse(os.path.exists(os.path.join(self.output, "_SUCCESS")))
        self.assertEqual(glob.glob(os.path.join(self.output, "*.parquet")), [])

    def test_output(self):
        os.makedirs(self.output)
        self.refused("already exists", "--truncate")
        self.run_main("--truncate", "--overwrite", "--prefix", "a ")
        rows = pyarrow.parquet.read_table(self.output).sort_by("id").to_pylist()
        self.assertEqual([row["text"] for row in rows], ["a", None, "dog " * 1000])
        expected = embed_by_sq(["a a", "a " + "dog " * 1000]).tolist()
        self.assertEqual([row["embedding"] for row in rows], [expected[0], None, expected[1]])
        self.refused("Unable to write|could not be created|Mkdirs failed", "--truncate", "--output", "/proc/vectors.parquet")


if __name__ == "__main__":
    unittest.main()
