package sq;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Function;

/** A model file, mapped. It never changes, and any number of threads may use it at once. Close it: the garbage collector does not. */
public final class Model implements AutoCloseable {
    private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock(); // read-locked by every call, write-locked by close
    private MemorySegment handle; // null after close
    private final Info info;
    private final List<String> labels;
    private final String isa;

    /** What a model can do beside embedding, in the order of sq.h. */
    public enum Head { NONE, CLASSIFY, ANSWER, TAG }

    /**
     * A description of a model.
     *
     * @param width floats in a token's vector
     * @param embedWidth floats in the vector of a text
     * @param maxTokens longest text by the checkpoint's settings, special tokens included
     * @param maxPositions longest text that the position table allows
     * @param logits of a text or a token; 0 without a head
     * @param multiLabel labels are independent: scores are sigmoids, not a softmax
     */
    public record Info(int layers, int width, int embedWidth, int vocabSize, int maxTokens, int maxPositions, Head head, int logits, boolean multiLabel) {}

    private Model(MemorySegment handle) {
        this.handle = handle;
        try (Arena arena = Arena.ofConfined()) {
            info = describe(arena, handle);
            labels = labelsOf(arena, handle);
        }
        isa = Native.isaString(handle);
    }

    public static Model load(Path path) {
        return load(path, LoadOptions.DEFAULT);
    }

    public static Model load(Path path, LoadOptions options) {
        if (Native.abiVersion() < Native.ABI_VERSION) {
            throw new SqException(Status.VERSION, "the library has ABI version " + Native.abiVersion() + ", and this program needs " + Native.ABI_VERSION);
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment params = Native.sized(arena, Native.MODEL_PARAMS);
            Native.set(params, Native.MODEL_PARAMS, "copy", Native.flag(options.copy()));
            Native.set(params, Native.MODEL_PARAMS, "verify", Native.flag(options.verify()));
            Native.set(params, Native.MODEL_PARAMS, "huge_pages", Native.flag(options.hugePages()));
            if (options.isa() != null) {
                Native.set(params, Native.MODEL_PARAMS, "isa", Native.string(arena, options.isa()));
            }
            MemorySegment handle = arena.allocate(ADDRESS);
            MemorySegment sentence = arena.allocate(Native.SENTENCE);
            int status = Native.modelLoad(Native.string(arena, path.toString()), params, handle, sentence);
            Native.check(status, sentence.getString(0, StandardCharsets.UTF_8));
            return new Model(handle.get(ADDRESS, 0));
        }
    }

    /** "MAJOR.MINOR.PATCH" of the library that is running. */
    public static String libraryVersion() {
        return Native.versionString();
    }

    private static Info describe(Arena arena, MemorySegment handle) {
        MemorySegment raw = Native.sized(arena, Native.MODEL_INFO);
        Native.check(Native.modelGetInfo(handle, raw), null);
        int[] n = raw.asSlice(0, 16 * JAVA_INT.byteSize()).toArray(JAVA_INT); // as sq_model_info names them
        return new Info(n[1], n[2], n[15], n[5], n[7], n[8], Head.values()[n[12]], n[13], n[14] != 0);
    }

    private static List<String> labelsOf(Arena arena, MemorySegment handle) {
        List<String> labels = new ArrayList<>();
        MemorySegment n = arena.allocate(JAVA_LONG);
        for (String name; (name = Native.modelLabel(handle, labels.size(), n)) != null;) {
            labels.add(name);
        }
        return List.copyOf(labels);
    }

    public Info info() {
        return info;
    }

    /** The names of the classes or tags, in the order of scores and logits; an answer head has none. */
    public List<String> labels() {
        return labels;
    }

    /** The instruction set that contexts use. */
    public String isa() {
        return isa;
    }

    /** A new context: its memory, and its workers, which sleep while idle. It outlives the model's close. */
    public Context newContext(ContextOptions options) {
        return use(model -> new Context(this, model, options));
    }

    /** A text's tokens, special tokens around them. */
    public List<Token> tokenize(String text, TextOptions options) {
        return use(model -> tokenize(model, Texts.utf8(text), null, options));
    }

    /** The tokens of a pair of texts. */
    public List<Token> tokenize(String first, String second, TextOptions options) {
        return use(model -> tokenize(model, Texts.utf8(first), Texts.utf8(second), options));
    }

    private List<Token> tokenize(MemorySegment model, byte[] a, byte[] b, TextOptions options) {
        long most = options.maxLength() == 0 ? info.maxTokens() : Integer.toUnsignedLong(options.maxLength()); // longer texts are cut or refused
        long capacity = Math.min(most, 16 + ((long) a.length + (b == null ? 0 : b.length)) / 2);
        while (true) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment first = Texts.bytes(arena, a);
                MemorySegment second = b == null ? MemorySegment.NULL : Texts.bytes(arena, b); // of an empty text it is not null
                MemorySegment params = Native.numbers(arena, options.maxLength(), Native.flag(options.truncate()), Native.flag(options.specialsAsText()));
                MemorySegment ids = arena.allocate(JAVA_INT, capacity);
                MemorySegment types = arena.allocate(JAVA_INT, capacity);
                MemorySegment spans = arena.allocate(JAVA_INT, 2 * capacity);
                MemorySegment sources = arena.allocate(JAVA_INT, capacity);
                MemorySegment count = arena.allocate(JAVA_LONG);
                int status = Native.tokenize(model, first, second, params, ids, types, spans, sources, capacity, count);
                long n = count.get(JAVA_LONG, 0);
                if (status == Native.SPACE) {
                    capacity = n;
                    continue;
                }
                Native.check(status, status == Native.LIMIT ? Native.statusString(status) + ": " + n + " tokens" : null);
                Texts.Offsets[] offsets = {new Texts.Offsets(a), new Texts.Offsets(b == null ? new byte[0] : b)};
                List<Token> tokens = new ArrayList<>();
                for (long i = 0; i < n; i++) {
                    int source = sources.getAtIndex(JAVA_INT, i);
                    Texts.Offsets place = offsets[source == 1 ? 1 : 0];
                    boolean added = source < 0;
                    int start = added ? 0 : place.at(spans.getAtIndex(JAVA_INT, 2 * i));
                    int end = added ? 0 : place.at(spans.getAtIndex(JAVA_INT, 2 * i + 1));
                    tokens.add(new Token(ids.getAtIndex(JAVA_INT, i), types.getAtIndex(JAVA_INT, i), start, end, source));
                }
                return tokens;
            }
        }
    }

    /** Runs a call with the model, which is not freed meanwhile. */
    <T> T use(Function<MemorySegment, T> call) {
        lock.readLock().lock();
        try {
            if (handle == null) {
                throw new SqException(Status.CLOSED, "the model is used after close");
            }
            return call.apply(handle);
        } finally {
            lock.readLock().unlock();
        }
    }

    /** Frees the model, once. {@link Status#BUSY} while a call runs; contexts do not count, they hold what they need. */
    @Override
    public void close() {
        if (!lock.writeLock().tryLock()) {
            throw new SqException(Status.BUSY, "the model is in use by another call");
        }
        try {
            if (handle != null) {
                Native.modelFree(handle);
                handle = null;
            }
        } finally {
            lock.writeLock().unlock();
        }
    }
}
