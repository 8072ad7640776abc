#!/usr/bin/env bash
# tests/test-spark.sh - `make spark`: the Spark job of examples/spark, on two executors of which one is killed, against what one process of `sq` gives.
#
# Environment: B and OUT as for run-tests.sh; SQ_SPARK_PYTHON is a python that has pyspark[sql] (python3 if not set). Without it or Java, the test is skipped.
# What is made lies in B/spark; executors listen on the loopback only.
set -euo pipefail
cd "$(dirname "$0")/.."
B=$(realpath -m "${B:-build}") OUT=$(realpath "${OUT:-.}") python=${SQ_SPARK_PYTHON:-python3}
folder=$B/spark

skip() {
    echo "SKIP spark: $1"
    exit 0
}

command -v "$python" >/dev/null || skip "$python is not installed"
"$python" -c 'import numpy, pandas, pyarrow, pyspark' 2>/dev/null || skip "$python lacks pyspark[sql]; SQ_SPARK_PYTHON names one that has it"
PYSPARK_PYTHON=$(command -v "$python") SPARK_HOME=$("$python" -c 'import pyspark; print(pyspark.__path__[0])')
export PYSPARK_PYTHON SPARK_HOME
[[ -n ${JAVA_HOME:-} ]] || command -v java >/dev/null || skip 'Java is not installed'

# Random weights of a real shape: enough to compute that a job can be disturbed midway.
mkdir -p "$folder"
"$OUT/sq-convert" --synthetic minilm --quiet -o "$folder/model.sq"

export SQ_TEST_DIR=$folder SQ=$OUT/sq SQ_LIBRARY=$OUT/libsq.so SPARK_LOCAL_IP=127.0.0.1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/examples/python:$PWD/examples/spark
cd examples/spark
"$PYSPARK_PYTHON" -m unittest -v "$@"
