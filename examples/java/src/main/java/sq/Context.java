package sq;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.function.ToIntFunction;

/**
 * Computes, for one thread at a time: a second call while one runs is {@link Status#BUSY}. Only {@link #cancel} may be called meanwhile. Close it: the garbage
 * collector does not.
 *
 * <p>The arguments of a call lie in an arena of its own, which ends with it.
 */
public final class Context implements AutoCloseable {
    private static final int MOST_ANSWERS = 21; // the library finds the 20 best, and "no answer"
    private static final int TAG_WORDS = 1;

    private final Semaphore running = new Semaphore(1); // held by every call and by close
    private final Object freeing = new Object(); // held by cancel, and by close while it frees; always taken last
    private MemorySegment handle; // null after close; read with either, written with both
    private final List<String> labels;
    private final int embedWidth;
    private final int logitsOfText;

    Context(Model model, MemorySegment ofModel, ContextOptions options) {
        labels = model.labels();
        embedWidth = model.info().embedWidth();
        logitsOfText = model.info().logits();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment params = Native.sized(arena, Native.CTX_PARAMS);
            Native.set(params, Native.CTX_PARAMS, "n_threads", options.threads());
            Native.set(params, Native.CTX_PARAMS, "max_tokens", options.maxTokens());
            Native.set(params, Native.CTX_PARAMS, "max_seqs", options.maxTexts());
            Native.set(params, Native.CTX_PARAMS, "no_tuning", Native.flag(options.noTuning()));
            MemorySegment created = arena.allocate(ADDRESS);
            MemorySegment sentence = arena.allocate(Native.SENTENCE);
            int status = Native.ctxCreate(ofModel, params, created, sentence);
            Native.check(status, sentence.getString(0, StandardCharsets.UTF_8));
            handle = created.get(ADDRESS, 0);
        }
    }

    // ---- the tasks ----

    public List<float[]> embed(List<String> texts) {
        return embed(texts, EmbedOptions.DEFAULT);
    }

    /** A vector for each text. Any number of texts; they run in batches that fit the context. */
    public List<float[]> embed(List<String> list, EmbedOptions options) {
        String[] texts = Texts.snapshot(list);
        int width = options.dimensions() == 0 ? embedWidth : Math.min(options.dimensions(), embedWidth);
        long size = (long) texts.length * width;
        try (Arena arena = Arena.ofConfined()) {
            TextOptions text = options.text();
            MemorySegment params = Native.numbers(arena, options.pooling().ordinal(), options.normalize().ordinal(), options.dimensions(),
                text.maxLength(), Native.flag(text.truncate()), Native.flag(text.specialsAsText()), 0);
            MemorySegment packed = Texts.singles(arena, texts);
            MemorySegment out = arena.allocate(JAVA_FLOAT, size);
            MemorySegment n = arena.allocate(JAVA_LONG);
            call(ctx -> Native.embed(ctx, packed, params, out, size, n));
            return rows(out, texts.length, width);
        }
    }

    public List<Classes> classify(List<String> texts) {
        return classify(texts, TextOptions.DEFAULT);
    }

    /** The classes of each text. */
    public List<Classes> classify(List<String> list, TextOptions options) {
        String[] texts = Texts.snapshot(list);
        try (Arena arena = Arena.ofConfined()) {
            return classes(arena, Texts.singles(arena, texts), texts.length, options);
        }
    }

    /** The classes of each pair (first[i], second[i]). */
    public List<Classes> classify(List<String> firstTexts, List<String> secondTexts, TextOptions options) {
        String[] first = Texts.snapshot(firstTexts);
        String[] second = Texts.snapshot(secondTexts);
        if (first.length != second.length) {
            throw new IllegalArgumentException("both texts of each pair are needed");
        }
        try (Arena arena = Arena.ofConfined()) {
            return classes(arena, Texts.pairs(arena, first, second), first.length, options);
        }
    }

    private List<Classes> classes(Arena arena, MemorySegment packed, int count, TextOptions options) {
        long size = (long) count * logitsOfText;
        MemorySegment scores = arena.allocate(JAVA_FLOAT, size);
        MemorySegment logits = arena.allocate(JAVA_FLOAT, size);
        MemorySegment params = textParams(arena, options);
        MemorySegment n = arena.allocate(JAVA_LONG);
        call(ctx -> Native.classify(ctx, packed, params, scores, logits, size, n));
        List<float[]> scoreRows = rows(scores, count, logitsOfText);
        List<float[]> logitRows = rows(logits, count, logitsOfText);
        List<Classes> classes = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            classes.add(new Classes(scoreRows.get(i), logitRows.get(i)));
        }
        return classes;
    }

    /** The documents by how well they answer the query, the best first, from a classifier of one label. */
    public List<Ranked> rerank(String query, List<String> list, TextOptions options) {
        String[] documents = Texts.snapshot(list);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment question = Texts.bytes(arena, Texts.utf8(query));
            MemorySegment packed = Texts.singles(arena, documents);
            MemorySegment params = textParams(arena, options);
            MemorySegment scores = arena.allocate(JAVA_FLOAT, documents.length);
            MemorySegment order = arena.allocate(JAVA_INT, documents.length);
            MemorySegment n = arena.allocate(JAVA_LONG);
            call(ctx -> Native.rerank(ctx, question, packed, params, scores, order, documents.length, n));
            List<Ranked> ranked = new ArrayList<>(documents.length);
            for (int document : order.toArray(JAVA_INT)) {
                ranked.add(new Ranked(document, scores.getAtIndex(JAVA_FLOAT, document)));
            }
            return ranked;
        }
    }

    /** The answers to a question in a context of any length, the best first. An empty context has none. */
    public List<Answer> answer(String question, String context, AnswerOptions options) {
        byte[] utf8 = Texts.utf8(context);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment asked = Texts.bytes(arena, Texts.utf8(question));
            MemorySegment searched = Texts.bytes(arena, utf8);
            MemorySegment params = Native.numbers(arena, options.window(), options.stride(), options.maxAnswer(), Native.flag(options.allowNull()),
                Native.flag(options.specialsAsText()));
            MemorySegment spans = arena.allocate(Native.ANSWER_SPAN, MOST_ANSWERS);
            MemorySegment n = arena.allocate(JAVA_LONG);
            call(ctx -> Native.answer(ctx, asked, searched, params, spans, MOST_ANSWERS, n));
            Texts.Offsets offsets = new Texts.Offsets(utf8);
            List<Answer> answers = new ArrayList<>();
            spans.elements(Native.ANSWER_SPAN).limit(n.get(JAVA_LONG, 0)).forEach(span -> answers.add(answer(span, offsets)));
            return answers;
        }
    }

    private static Answer answer(MemorySegment span, Texts.Offsets offsets) {
        int start = offsets.at(span.get(JAVA_LONG, Native.offset(Native.ANSWER_SPAN, "start")));
        int end = offsets.at(span.get(JAVA_LONG, Native.offset(Native.ANSWER_SPAN, "end")));
        float score = span.get(JAVA_FLOAT, Native.offset(Native.ANSWER_SPAN, "score"));
        return new Answer(start, end, score, span.get(JAVA_FLOAT, Native.offset(Native.ANSWER_SPAN, "probability")));
    }

    /** The entities of texts, in their order; with words, an entry for each word, label "O" included. */
    public List<Entity> tag(List<String> list, boolean words, TextOptions options) {
        String[] texts = Texts.snapshot(list);
        long capacity = 16 * (texts.length + 1L);
        while (true) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment packed = Texts.singles(arena, texts);
                MemorySegment params = Native.numbers(arena, words ? TAG_WORDS : 0, options.maxLength(), Native.flag(options.truncate()),
                    Native.flag(options.specialsAsText()), 0);
                MemorySegment found = arena.allocate(Native.ENTITY, capacity);
                MemorySegment n = arena.allocate(JAVA_LONG);
                long room = capacity;
                int status = callOrLackSpace(ctx -> Native.tag(ctx, packed, params, found, room, n));
                capacity = n.get(JAVA_LONG, 0);
                if (status == Native.OK) {
                    return entities(found.asSlice(0, capacity * Native.ENTITY.byteSize()), texts);
                }
            }
        }
    }

    private List<Entity> entities(MemorySegment found, String[] texts) {
        List<Entity> entities = new ArrayList<>();
        Texts.Offsets offsets = null;
        int current = -1; // the text of offsets
        for (MemorySegment e : (Iterable<MemorySegment>) found.elements(Native.ENTITY)::iterator) {
            int text = e.get(JAVA_INT, Native.offset(Native.ENTITY, "text"));
            if (text != current) {
                offsets = new Texts.Offsets(Texts.utf8(texts[text]));
                current = text;
            }
            entities.add(new Entity(text, labels.get(e.get(JAVA_INT, Native.offset(Native.ENTITY, "label"))),
                offsets.at(e.get(JAVA_LONG, Native.offset(Native.ENTITY, "start"))), offsets.at(e.get(JAVA_LONG, Native.offset(Native.ENTITY, "end"))),
                e.get(JAVA_FLOAT, Native.offset(Native.ENTITY, "score")), e.get(JAVA_INT, Native.offset(Native.ENTITY, "n_words"))));
        }
        return entities;
    }

    private static MemorySegment textParams(Arena arena, TextOptions options) {
        return Native.numbers(arena, options.maxLength(), Native.flag(options.truncate()), Native.flag(options.specialsAsText()));
    }

    private static List<float[]> rows(MemorySegment matrix, int count, int width) {
        List<float[]> rows = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            float[] row = new float[width];
            MemorySegment.copy(matrix, JAVA_FLOAT, (long) i * width * Float.BYTES, row, 0, width);
            rows.add(row);
        }
        return rows;
    }

    // ---- one call at a time ----

    private void call(ToIntFunction<MemorySegment> function) {
        if (callOrLackSpace(function) == Native.SPACE) {
            throw new SqException(Status.SPACE, Native.statusString(Native.SPACE));
        }
    }

    /** Runs one of the library's functions, alone. Returns OK or SPACE. */
    private int callOrLackSpace(ToIntFunction<MemorySegment> function) {
        enter();
        try {
            int status = function.applyAsInt(handle);
            if (status != Native.OK && status != Native.SPACE) {
                Native.check(status, Native.ctxError(handle));
            }
            return status;
        } finally {
            running.release();
        }
    }

    private void takeTurn() {
        if (!running.tryAcquire()) {
            throw new SqException(Status.BUSY, "the context is in use by another call");
        }
    }

    private void enter() {
        takeTurn();
        if (handle == null) {
            running.release();
            throw new SqException(Status.CLOSED, "the context is used after close");
        }
    }

    /** Makes the call that runs end with {@link Status#CANCEL} soon; a call that has not reached the library yet goes on. Any thread, any time. */
    public void cancel() {
        synchronized (freeing) {
            if (handle != null) {
                Native.ctxCancel(handle);
            }
        }
    }

    /** Stops the workers and frees the context, once. {@link Status#BUSY} while a call runs, and then nothing is closed. */
    @Override
    public void close() {
        takeTurn();
        try {
            synchronized (freeing) {
                if (handle != null) {
                    Native.ctxFree(handle);
                    handle = null;
                }
            }
        } finally {
            running.release();
        }
    }
}
