"""What a call from Python takes longer than from C, for a text of 16 tokens on one thread.

python3 -m bench_overhead FOLDER MODEL.sq [ROUNDS]

FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of its own. Both run in alternation, a block
of calls each; medians of the blocks' medians, and of their differences.
"""

import os
import statistics
import subprocess
import sys
import time

import sq

TEXT = "the dog and the cat sleep in the old house by the a a"  # 16 tokens in the tiny tests' and in English vocabularies
BLOCK_SECONDS = 0.03


def block(context, n):
    """Median nanoseconds of n calls."""
    times = []
    for _ in range(n):
        start = time.perf_counter_ns()
        context.embed([TEXT])
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def block_in_c(process, n):
    process.stdin.write(f"{n}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(folder, path, rounds=100):
    with sq.Model(path) as model, model.context(threads=1, no_tuning=True) as context:
        assert len(model.tokenize(TEXT)) == 16
        command = [os.path.join(folder, "call"), path, TEXT]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            n = max(10, int(BLOCK_SECONDS * 1e9 / block_in_c(process, 50)))
            block(context, n)
            pairs = [(block_in_c(process, n), block(context, n)) for _ in range(int(rounds))]
            process.stdin.close()
    c = statistics.median(x for x, _ in pairs)
    difference = statistics.median(y - x for x, y in pairs)
    print(f"C {c / 1e3:.2f} us, Python {(c + difference) / 1e3:.2f} us: overhead {difference / 1e3:.2f} us, {100 * difference / c:.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
