"""What a call from Python takes longer than from C, for a text of 16 tokens on one thread.

python3 -m bench_overhead FOLDER MODEL.sq [ROUNDS]

FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of its own. Both run in alternation, a block
of calls each. What Python adds is the median, and the quartiles, of the rounds' differences of the blocks' medians; and the difference of the fastest calls of
all, which other work on the machine disturbs least.
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
    """Nanoseconds of n calls: the median, the fastest."""
    times = []
    texts = [TEXT]
    for _ in range(n):
        start = time.perf_counter_ns()
        context.embed(texts)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times), min(times)


def block_in_c(process, n):
    process.stdin.write(f"{n}\n")
    process.stdin.flush()
    return tuple(map(float, process.stdout.readline().split()))


def main(folder, path, rounds=100):
    with sq.Model(path) as model, model.context(threads=1, no_tuning=True) as context:
        assert len(model.tokenize(TEXT)) == 16
        command = [os.path.join(folder, "call"), path, TEXT]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            n = max(10, int(BLOCK_SECONDS * 1e9 / block_in_c(process, 50)[0]))
            block(context, n)
            pairs = [(block_in_c(process, n), block(context, n)) for _ in range(int(rounds))]
            process.stdin.close()
    c = statistics.median(c for (c, _), _ in pairs)
    low, more, high = statistics.quantiles((python - c for (c, _), (python, _) in pairs), n=4)
    fastest = [min(side[1] for side in sides) for sides in zip(*pairs)]
    print(f"C {c / 1e3:.2f} us; more from Python: {more / 1e3:.2f} us ({low / 1e3:.2f} to {high / 1e3:.2f}), {100 * more / c:.2f} %")
    print(f"fastest: C {fastest[0] / 1e3:.2f} us; more from Python: {(fastest[1] - fastest[0]) / 1e3:.2f} us")


if __name__ == "__main__":
    main(*sys.argv[1:])
