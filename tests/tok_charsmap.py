"""Builds a precompiled_charsmap, SentencePiece's double array of replacements, for tests: small maps, or one over all of Unicode."""
import struct


def charsmap(replacements):
    """bytes of the map {key: value}, both non-empty-key UTF-8 bytes without NUL. Units are darts-clone's; the array is roomy, not tight."""
    text, at = bytearray(), {}
    for value in sorted(set(replacements.values())):
        at[value] = len(text)
        text += value + b"\0"
    units, free = {}, [1]

    def block(n):
        first = -(-free[0] // n) * n
        free[0] = first + n
        return first

    def build(node, label, keys):
        leaf, below = b"" in keys, {}
        for k, v in keys.items():
            if k:
                below.setdefault(k[0], {})[k[1:]] = v
        # Below the first byte of a character all labels are 0x80..0xBF: 64 units from base ^ 0x80 are enough, unless base itself holds a value.
        narrow = below and not leaf and all(0x80 <= b < 0xC0 for b in below)
        base = block(64) ^ 0x80 if narrow else block(256) if below else block(1)
        units[node] = (node ^ base) << 10 | (256 if leaf else 0) | label
        if leaf:
            units[base] = 1 << 31 | at[keys[b""]]
        for b, rest in below.items():
            build(base ^ b, b, rest)

    build(0, 0, replacements)
    n = (max(units) | 255) + 1
    data = bytearray(4 * n)
    for i, u in units.items():
        struct.pack_into("<I", data, 4 * i, u)
    return struct.pack("<I", 4 * n) + bytes(data) + bytes(text)
