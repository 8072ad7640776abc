"""How alike are two texts? sq from Python in one page.

python3 hello.py MODEL.sq "A man is eating." "Someone has lunch."
"""

import math
import sys

import sq


def cosine(x, y):
    xy = sum(a * b for a, b in zip(x, y))
    lengths = math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))
    return xy / lengths if lengths else 0.0


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: hello.py MODEL.sq TEXT TEXT")
    try:
        with sq.Model(sys.argv[1]) as model, model.context() as context:
            first, second = context.embed(sys.argv[2:])
    except sq.Error as error:
        sys.exit(f"hello: {error}")
    print(f"cosine similarity {cosine(first, second):.4f}")


if __name__ == "__main__":
    main()
