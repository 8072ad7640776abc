"""What the job embeds a second on two executors of one core, beside one process of the `sq` command with one thread and with two.

spark-submit --master 'local-cluster[2,1,1024]' --py-files ../python/sq.py,embed.py bench.py MODEL.sq TEXTS.txt [ROWS [ROUNDS]]

Rows are lines of TEXTS.txt, from the beginning again as often as it takes. The three sides take turns. Spark's part is a job on executors that are there
already, from reading Parquet to the last file committed. Beside the time stands what all processes used of CPUs, which other load changes less.
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
import proc

SQ = os.environ.get("SQ", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sq"))
SPARK = "Spark, 2 executors"


def write_rows(folder, path, n):
    with open(path, encoding="utf-8") as file:
        texts = list(itertools.islice(itertools.cycle(file.read().splitlines()), n))
    pyarrow.parquet.write_table(pyarrow.table({"id": range(n), "text": texts}), f"{folder}/texts.parquet")
    with open(f"{folder}/texts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"a": text}) + "\n" for text in texts)


def make_sides(folder, model):
    """Name and function of each side."""
    options = embed.parse(
        ["--model", model, "--input", f"{folder}/texts.parquet", "--output", f"{folder}/vectors.parquet", "--truncate", "--overwrite"]
    )
    spark = embed.session(options)

    def one_process(threads):
        files = ["--jsonl", f"{folder}/texts.jsonl", "-o", f"{folder}/vectors.npy", "--format", "npy"]
        subprocess.run([SQ, "embed", "-m", model, "--truncate", "--threads", str(threads), *files], check=True)

    return {"sq, 1 thread": lambda: one_process(1), "sq, 2 threads": lambda: one_process(2), SPARK: lambda: embed.run(spark, options)}


def cost(function):
    """Seconds of time, and of CPUs in all processes of the driver."""
    driver = os.getppid()  # the JVM of spark-submit; executors and this process are its children
    start, start_cpu = time.perf_counter(), proc.cpu_seconds(driver)
    function()
    return time.perf_counter() - start, proc.cpu_seconds(driver) - start_cpu


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(model, texts, n_rows=4000, n_rounds=11):
    n_rows, n_rounds = int(n_rows), int(n_rounds)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(folder, texts, n_rows)
        sides = make_sides(folder, model)
        sides[SPARK]()  # compiles Java
        rounds = [{name: cost(function) for name, function in sides.items()} for _ in range(n_rounds)]
    print(f"{n_rows} rows, {n_rounds} rounds: medians, and quartiles of what Spark reaches beside the others")
    for name in sides:
        seconds, cpu_seconds = (statistics.median(x[name][i] for x in rounds) for i in range(2))
        line = f"{name}: {n_rows / seconds:.0f} rows a second, {n_rows / cpu_seconds:.0f} a second of CPU"
        if name != SPARK:
            line += "; beside it " + ", ".join(spread([x[name][i] / x[SPARK][i] for x in rounds]) for i in range(2))
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
