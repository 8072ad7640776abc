package sq;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;

/**
 * The functions and structs of sq.h under their names, for 64-bit machines: size_t is a long.
 *
 * <p>The library is found by the system property sq.library or the environment variable SQ_LIBRARY (a path), or by the system's linker.
 */
final class Native {
    static final int OK = 0;
    static final int SPACE = -7;
    static final int LIMIT = -8;
    static final int ABI_VERSION = 1;
    static final int SENTENCE = 256; // bytes for an error's text

    private static final SymbolLookup LIBRARY = SymbolLookup.libraryLookup(libraryName(), Arena.global());

    /** A NUL-terminated string of any length, which the library owns. */
    private static final AddressLayout STRING = ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(Long.MAX_VALUE, java.lang.foreign.ValueLayout.JAVA_BYTE));

    static final StructLayout MODEL_PARAMS = MemoryLayout.structLayout(
        JAVA_INT.withName("size"), JAVA_INT.withName("copy"), JAVA_INT.withName("verify"), JAVA_INT.withName("huge_pages"), ADDRESS.withName("isa"));
    static final StructLayout CTX_PARAMS = MemoryLayout.structLayout(
        JAVA_INT.withName("size"), JAVA_INT.withName("n_threads"), JAVA_INT.withName("max_tokens"), JAVA_INT.withName("max_seqs"),
        ADDRESS.withName("cpus"), JAVA_INT.withName("spin_us"), JAVA_INT.withName("no_tuning"), ADDRESS.withName("tuning"));
    static final StructLayout TEXTS = MemoryLayout.structLayout(
        JAVA_INT.withName("size"), JAVA_INT.withName("n_texts"), ADDRESS.withName("a"), ADDRESS.withName("a_starts"), ADDRESS.withName("b"),
        ADDRESS.withName("b_starts"));
    static final StructLayout ANSWER_SPAN = MemoryLayout.structLayout(
        JAVA_LONG.withName("start"), JAVA_LONG.withName("end"), JAVA_FLOAT.withName("score"), JAVA_FLOAT.withName("probability"));
    static final StructLayout ENTITY = MemoryLayout.structLayout(
        JAVA_INT.withName("text"), JAVA_INT.withName("label"), JAVA_LONG.withName("start"), JAVA_LONG.withName("end"), JAVA_FLOAT.withName("score"),
        JAVA_INT.withName("n_words"));

    /** sq_model_info: 16 numbers of 32 bits in the header's order, then two of 64. */
    static final StructLayout MODEL_INFO = MemoryLayout.structLayout(
        MemoryLayout.sequenceLayout(16, JAVA_INT).withName("numbers"), JAVA_LONG.withName("file_bytes"), JAVA_LONG.withName("n_params"));

    private static final MethodHandle ABI_VERSION_OF = function("sq_abi_version", FunctionDescriptor.of(JAVA_INT));
    private static final MethodHandle VERSION_STRING = function("sq_version_string", FunctionDescriptor.of(STRING));
    private static final MethodHandle STATUS_STRING = function("sq_status_string", FunctionDescriptor.of(STRING, JAVA_INT));
    private static final MethodHandle MODEL_LOAD = function("sq_model_load", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG));
    private static final MethodHandle MODEL_FREE = function("sq_model_free", FunctionDescriptor.ofVoid(ADDRESS));
    private static final MethodHandle MODEL_GET_INFO = function("sq_model_get_info", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    private static final MethodHandle MODEL_LABEL = function("sq_model_label", FunctionDescriptor.of(STRING, ADDRESS, JAVA_INT, ADDRESS));
    private static final MethodHandle ISA_STRING = function("sq_isa_string", FunctionDescriptor.of(STRING, ADDRESS));
    private static final MethodHandle TOKENIZE = function("sq_tokenize",
        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    private static final MethodHandle CTX_CREATE = function("sq_ctx_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG));
    private static final MethodHandle CTX_FREE = function("sq_ctx_free", FunctionDescriptor.ofVoid(ADDRESS));
    private static final MethodHandle CTX_CANCEL = function("sq_ctx_cancel", FunctionDescriptor.ofVoid(ADDRESS));
    private static final MethodHandle CTX_ERROR = function("sq_ctx_error", FunctionDescriptor.of(STRING, ADDRESS));
    private static final MethodHandle EMBED = function("sq_embed", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    private static final MethodHandle CLASSIFY =
        function("sq_classify", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    private static final MethodHandle RERANK =
        function("sq_rerank", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    private static final MethodHandle ANSWER =
        function("sq_answer", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
    private static final MethodHandle TAG = function("sq_tag", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));

    private Native() {}

    private static String libraryName() {
        String property = System.getProperty("sq.library");
        String variable = System.getenv("SQ_LIBRARY");
        return property != null ? property : variable != null ? variable : "libsq.so.0";
    }

    private static MethodHandle function(String name, FunctionDescriptor signature) {
        return Linker.nativeLinker().downcallHandle(LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError(name)), signature);
    }

    // ---- the functions ----

    static int abiVersion() {
        try {
            return (int) ABI_VERSION_OF.invokeExact();
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static String versionString() {
        try {
            return text((MemorySegment) VERSION_STRING.invokeExact());
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static String statusString(int status) {
        try {
            return text((MemorySegment) STATUS_STRING.invokeExact(status));
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int modelLoad(MemorySegment path, MemorySegment params, MemorySegment model, MemorySegment err) {
        try {
            return (int) MODEL_LOAD.invokeExact(path, params, model, err, err.byteSize());
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static void modelFree(MemorySegment model) {
        try {
            MODEL_FREE.invokeExact(model);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int modelGetInfo(MemorySegment model, MemorySegment info) {
        try {
            return (int) MODEL_GET_INFO.invokeExact(model, info);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** The name of a label, or null. */
    static String modelLabel(MemorySegment model, int i, MemorySegment n) {
        try {
            return text((MemorySegment) MODEL_LABEL.invokeExact(model, i, n));
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static String isaString(MemorySegment model) {
        try {
            return text((MemorySegment) ISA_STRING.invokeExact(model));
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int tokenize(MemorySegment model, MemorySegment a, MemorySegment b, MemorySegment params, MemorySegment ids, MemorySegment types,
            MemorySegment spans, MemorySegment sources, long capacity, MemorySegment n) {
        try {
            return (int) TOKENIZE.invokeExact(model, a, a.byteSize(), b, b.byteSize(), params, ids, types, spans, sources, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int ctxCreate(MemorySegment model, MemorySegment params, MemorySegment ctx, MemorySegment err) {
        try {
            return (int) CTX_CREATE.invokeExact(model, params, ctx, err, err.byteSize());
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static void ctxFree(MemorySegment ctx) {
        try {
            CTX_FREE.invokeExact(ctx);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static void ctxCancel(MemorySegment ctx) {
        try {
            CTX_CANCEL.invokeExact(ctx);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static String ctxError(MemorySegment ctx) {
        try {
            return text((MemorySegment) CTX_ERROR.invokeExact(ctx));
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int embed(MemorySegment ctx, MemorySegment texts, MemorySegment params, MemorySegment out, long capacity, MemorySegment n) {
        try {
            return (int) EMBED.invokeExact(ctx, texts, params, out, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int classify(MemorySegment ctx, MemorySegment texts, MemorySegment params, MemorySegment scores, MemorySegment logits, long capacity,
            MemorySegment n) {
        try {
            return (int) CLASSIFY.invokeExact(ctx, texts, params, scores, logits, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int rerank(MemorySegment ctx, MemorySegment query, MemorySegment documents, MemorySegment params, MemorySegment scores, MemorySegment order,
            long capacity, MemorySegment n) {
        try {
            return (int) RERANK.invokeExact(ctx, query, query.byteSize(), documents, params, scores, order, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int answer(MemorySegment ctx, MemorySegment question, MemorySegment context, MemorySegment params, MemorySegment spans, long capacity,
            MemorySegment n) {
        try {
            return (int) ANSWER.invokeExact(ctx, question, question.byteSize(), context, context.byteSize(), params, spans, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static int tag(MemorySegment ctx, MemorySegment texts, MemorySegment params, MemorySegment entities, long capacity, MemorySegment n) {
        try {
            return (int) TAG.invokeExact(ctx, texts, params, entities, capacity, n);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    // ---- their arguments ----

    /** A copy of one of the library's strings; null for a null pointer. */
    private static String text(MemorySegment string) {
        return string.address() == 0 ? null : string.getString(0, StandardCharsets.UTF_8);
    }

    /** A string for C, which would read one with a NUL in it only up to there. */
    static MemorySegment string(SegmentAllocator memory, String text) {
        if (text.indexOf('\0') >= 0) {
            throw new SqException(Status.ARG, "there is a NUL in a name");
        }
        return memory.allocateFrom(text);
    }

    /** A struct of 32-bit numbers, the first of which is its size in bytes. */
    static MemorySegment numbers(SegmentAllocator memory, int... fields) {
        MemorySegment struct = memory.allocate(JAVA_INT, fields.length + 1L);
        struct.setAtIndex(JAVA_INT, 0, (int) struct.byteSize());
        for (int i = 0; i < fields.length; i++) {
            struct.setAtIndex(JAVA_INT, i + 1L, fields[i]);
        }
        return struct;
    }

    /** A zeroed struct whose size field is set. */
    static MemorySegment sized(SegmentAllocator memory, StructLayout layout) {
        MemorySegment struct = memory.allocate(layout);
        struct.set(JAVA_INT, 0, (int) layout.byteSize());
        return struct;
    }

    static void set(MemorySegment struct, StructLayout layout, String field, int value) {
        struct.set(JAVA_INT, offset(layout, field), value);
    }

    static void set(MemorySegment struct, StructLayout layout, String field, MemorySegment value) {
        struct.set(ADDRESS, offset(layout, field), value);
    }

    static long offset(StructLayout layout, String field) {
        return layout.byteOffset(MemoryLayout.PathElement.groupElement(field));
    }

    static int flag(boolean is) {
        return is ? 1 : 0;
    }

    /** Throws what a failed call means; without a sentence the status speaks. */
    static void check(int status, String sentence) {
        if (status != OK) {
            throw new SqException(Status.of(status), sentence == null || sentence.isEmpty() ? statusString(status) : sentence);
        }
    }
}
