"""Embeds a text column of a Parquet data set on Spark: reads ids and texts, writes Parquet with both and a column `embedding`.

spark-submit --py-files ../python/sq.py embed.py --model minilm.sq --input texts.parquet --output vectors.parquet

The model file has the same path on every host. Each of Spark's Python workers runs one task at a time, which maps the model (in less than a millisecond),
makes a context of spark.task.cpus threads, and goes through its rows an Arrow record batch at a time. The pages of the model are the same memory in all
processes of a host.

Spark starts anew what a lost executor had begun, and lets only one attempt of each task commit. The same rows come out, since an embedding does not depend on
where, when or beside which other texts it is computed.
"""

import argparse
import functools
import os
import sys

import numpy
import pyarrow
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType

import sq

EMBEDDING = "embedding"
TASKS_PER_CORE = 4  # so that all cores end at about the same time, and a lost task is a small loss
BATCH_BYTES = 16 << 20  # bounds a record batch of long texts, where --batch alone would not


# ---- in Spark's Python workers ----


def embed_batches(batches, path, prefix, truncate):
    """For each record batch of ids and texts, one with the embeddings too. A row without a text gets none."""
    with sq.Model(path) as model, model.context(threads=TaskContext.get().cpus()) as context:
        for batch in batches:
            ids, texts = batch.columns
            rows = [(i, prefix + text) for i, text in enumerate(texts.to_pylist()) if text is not None]
            vectors = [None] * len(texts)
            try:
                for (i, _), vector in zip(rows, context.embed([text for _, text in rows], truncate=truncate)):
                    vectors[i] = numpy.frombuffer(vector, numpy.float32)
            except sq.Error:
                name_row(context, ((ids[i].as_py(), text) for i, text in rows), truncate)
                raise
            embeddings = pyarrow.array(vectors, pyarrow.list_(pyarrow.float32()))
            yield pyarrow.RecordBatch.from_arrays([ids, texts, embeddings], [*batch.schema.names, EMBEDDING])


def name_row(context, rows, truncate):
    """Raises the error of the first row that has one, with the row's id."""
    for identifier, text in rows:
        try:
            context.embed([text], truncate=truncate)
        except sq.Error as error:
            raise sq.Error(error.status, f"row {identifier!r}: {error}") from None


# ---- in the driver ----


class Refused(Exception):
    """What the job cannot do; the text says why."""


def parse(arguments):
    parser = argparse.ArgumentParser(prog="embed.py", description="Embeds a text column of a Parquet data set on Spark.")
    parser.add_argument("--model", required=True, metavar="FILE", help="model file of sq-convert, at the same path on every host")
    parser.add_argument("--input", required=True, metavar="PATH", help="Parquet data set")
    parser.add_argument("--output", required=True, metavar="PATH", help="Parquet data set to write: the two columns and `embedding`, array<float>")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at the output's path, instead of failing")
    parser.add_argument("--id", default="id", metavar="COLUMN", help="column that identifies a row, of any type (default: id)")
    parser.add_argument("--text", default="text", metavar="COLUMN", help="column of texts (default: text)")
    parser.add_argument("--prefix", default="", metavar="TEXT", help='put before each text ("query: " and "passage: " for E5 models)')
    parser.add_argument("--truncate", action="store_true", help="cut texts that are longer than the model takes, instead of failing")
    parser.add_argument("--tasks", type=int, metavar="N", help=f"tasks that share the rows, and files (default: {TASKS_PER_CORE} for each core)")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="most rows of an Arrow record batch (default: 512)")
    options = parser.parse_args(arguments)
    if options.tasks is not None and options.tasks < 1:
        parser.error("--tasks must be at least 1")
    if not 1 <= options.batch <= 65536:
        parser.error("--batch must be 1 to 65536")
    if len({options.id, options.text, EMBEDDING}) < 3:
        parser.error(f"--id, --text and `{EMBEDDING}` must be three different columns")
    options.model = os.path.abspath(options.model)  # executors work in other folders
    return options


def session(options):
    builder = SparkSession.builder.appName("sq embed")
    builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", options.batch)
    builder.config("spark.sql.execution.arrow.maxBytesPerBatch", BATCH_BYTES)
    if "SQ_LIBRARY" in os.environ:
        builder.config("spark.executorEnv.SQ_LIBRARY", os.path.abspath(os.environ["SQ_LIBRARY"]))
    return builder.getOrCreate()


def read(spark, options):
    frame = spark.read.parquet(options.input)
    for name in (options.id, options.text):
        if name not in frame.columns:
            raise Refused(f"{options.input} has no column {name}; it has {', '.join(frame.columns)}")
    kind = frame.schema[options.text].dataType
    if not isinstance(kind, StringType):
        raise Refused(f"column {options.text} of {options.input} is {kind.simpleString()}, not string")
    return frame.select(options.id, options.text)


def run(spark, options):
    """Does the job. Rows go to tasks by their id, so that a stage that must be repeated shares them in the same way."""
    frame = read(spark, options)
    tasks = options.tasks or TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    embed = functools.partial(embed_batches, path=options.model, prefix=options.prefix, truncate=options.truncate)
    schema = StructType([*frame.schema, StructField(EMBEDDING, ArrayType(FloatType()))])
    (
        frame.repartition(tasks, options.id)
        .mapInArrow(embed, schema)
        .write.mode("overwrite" if options.overwrite else "errorifexists")
        # Version 2 moves a task's files as it commits: an executor lost just then would leave them beside those of the next attempt.
        .option("mapreduce.fileoutputcommitter.algorithm.version", "1")
        .parquet(options.output)
    )


def sentence(error):
    """What went wrong, in a line, without the stack traces around it."""
    if isinstance(error, PythonException):
        return str(error).strip().splitlines()[-1]
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().splitlines()[0]


def main(arguments):
    options = parse(arguments)
    try:
        with sq.Model(options.model):
            pass  # it loads here: what is wrong with it need not be found by every executor
        with session(options) as spark:
            run(spark, options)
    except (sq.Error, Refused, PySparkException, Py4JJavaError) as error:
        sys.exit(f"embed: {sentence(error)}")


if __name__ == "__main__":
    main(sys.argv[1:])
