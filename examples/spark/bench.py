"""What the job embeds a second on two executors of one core, beside one process of the `sq` command with one thread and with two.

spark-submit --master 'local-cluster[2,1,1024]' --py-files ../python/sq.py,embed.py bench.py MODEL.sq TEXTS.txt [ROWS [ROUNDS]]

Rows are lines of TEXTS.txt, from the beginning again as often as it takes. The three sides take turns. Spark's time is that of a job on executors that are
there already, from reading Parquet to the last file committed; what they take to start is printed by itself.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet

import embed

SQ = os.environ.get("SQ", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sq"))


def write_rows(folder, path, n):
    with open(path, encoding="utf-8") as file:
        texts = list(itertools.islice(itertools.cycle(file.read().splitlines()), n))
    pyarrow.parquet.write_table(pyarrow.table({"id": range(n), "text": texts}), os.path.join(folder, "texts.parquet"))
    with open(os.path.join(folder, "texts.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"a": text}) + "\n" for text in texts)


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def sides(folder, model):
    """Name and function of each side, and how long Spark took to start."""
    options = ["--model", model, "--input", f"{folder}/texts.parquet", "--output", f"{folder}/vectors.parquet", "--truncate", "--overwrite"]
    options = embed.parse(options)
    start = time.perf_counter()
    spark = embed.session(options)
    embed.run(spark, options)  # the first one compiles Java
    start_seconds = time.perf_counter() - start

    def command(threads):
        files = ["--jsonl", f"{folder}/texts.jsonl", "-o", f"{folder}/vectors.npy", "--format", "npy"]
        subprocess.run([SQ, "embed", "-m", model, "--truncate", "--threads", str(threads), *files], check=True)

    return {"sq, 1 thread": lambda: command(1), "sq, 2 threads": lambda: command(2), "Spark": lambda: embed.run(spark, options)}, start_seconds


def summary(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(model, texts, n_rows=4000, n_rounds=11):
    n_rows, n_rounds = int(n_rows), int(n_rounds)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(folder, texts, n_rows)
        functions, start_seconds = sides(folder, model)
        rounds = [{name: seconds(function) for name, function in functions.items()} for _ in range(n_rounds)]
    print(f"{n_rows} rows, {n_rounds} rounds; median and quartiles. Starting Spark and a first job took {start_seconds:.0f} s.")
    for name in functions:
        print(f"{name}: {n_rows / statistics.median(x[name] for x in rounds):.0f} rows a second")
    for name in list(functions)[:-1]:
        print(f"Spark / {name}: {summary([x[name] / x['Spark'] for x in rounds])}")


if __name__ == "__main__":
    main(*sys.argv[1:])
