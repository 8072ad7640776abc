package sq;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Strings as the library takes them, and its offsets as strings have them. */
final class Texts {
    private static final long N_TEXTS = Native.offset(Native.TEXTS, "n_texts");
    private static final long A = Native.offset(Native.TEXTS, "a");
    private static final long A_STARTS = Native.offset(Native.TEXTS, "a_starts");
    private static final long B = Native.offset(Native.TEXTS, "b");
    private static final long B_STARTS = Native.offset(Native.TEXTS, "b_starts");

    private Texts() {}

    /** UTF-8, in which a lone surrogate, which has no form in it, is U+FFFD. */
    static byte[] utf8(String text) {
        return withoutLoneSurrogates(text).getBytes(StandardCharsets.UTF_8);
    }

    private static String withoutLoneSurrogates(String text) {
        StringBuilder repaired = null;
        for (int i = 0; i < text.length(); i++) {
            if (!Character.isSurrogate(text.charAt(i))) {
                continue;
            }
            if (Character.isSupplementaryCodePoint(text.codePointAt(i))) {
                i++;
                continue;
            }
            repaired = repaired == null ? new StringBuilder(text) : repaired;
            repaired.setCharAt(i, '\ufffd');
        }
        return repaired == null ? text : repaired.toString();
    }

    /** A text's bytes where the library can read them. */
    static MemorySegment bytes(SegmentAllocator memory, byte[] utf8) {
        return memory.allocateFrom(JAVA_BYTE, utf8);
    }

    /** The texts as they are now: what another thread does to the list meanwhile must not reach the library, which trusts the counts that it is given. */
    static String[] snapshot(List<String> texts) {
        return texts.toArray(String[]::new);
    }

    /** An sq_texts of single texts. */
    static MemorySegment singles(SegmentAllocator memory, String[] texts) {
        MemorySegment struct = Native.sized(memory, Native.TEXTS);
        struct.set(JAVA_INT, N_TEXTS, texts.length);
        fill(memory, struct, texts, A, A_STARTS);
        return struct;
    }

    /** An sq_texts of pairs: the arrays have the same length. */
    static MemorySegment pairs(SegmentAllocator memory, String[] first, String[] second) {
        MemorySegment struct = singles(memory, first);
        fill(memory, struct, second, B, B_STARTS);
        return struct;
    }

    private static void fill(SegmentAllocator memory, MemorySegment struct, String[] texts, long bytesField, long startsField) {
        byte[][] parts = new byte[texts.length][];
        MemorySegment starts = memory.allocate(JAVA_LONG, texts.length + 1L);
        long total = 0;
        for (int i = 0; i < parts.length; i++) {
            parts[i] = utf8(texts[i]);
            total += parts[i].length;
            starts.setAtIndex(JAVA_LONG, i + 1L, total);
        }
        MemorySegment bytes = memory.allocate(total);
        for (int i = 0; i < parts.length; i++) {
            MemorySegment.copy(parts[i], 0, bytes, JAVA_BYTE, starts.getAtIndex(JAVA_LONG, i), parts[i].length);
        }
        struct.set(ADDRESS, bytesField, bytes);
        struct.set(ADDRESS, startsField, starts);
    }

    /** Turns offsets into a text's UTF-8 into offsets into the string. Asked in rising order, it reads the text once. */
    static final class Offsets {
        private final byte[] utf8;
        private int byteOffset;
        private int charOffset;

        Offsets(byte[] utf8) {
            this.utf8 = utf8;
        }

        int at(long offset) {
            if (offset < byteOffset) {
                byteOffset = 0;
                charOffset = 0;
            }
            for (; byteOffset < offset; byteOffset++) {
                int lead = utf8[byteOffset] & 0xff;
                boolean continues = (lead & 0xc0) == 0x80;
                charOffset += continues ? 0 : lead >= 0xf0 ? 2 : 1; // four bytes are a pair of surrogates
            }
            return charOffset;
        }
    }
}
