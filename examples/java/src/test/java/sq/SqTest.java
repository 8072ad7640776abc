package sq;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.SequenceLayout;
import java.lang.foreign.StructLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Every result beside what C gives, bit by bit. The folder SQ_TEST_DIR has models, texts, and C's results (tests/bindings/reference.c describes them). */
class SqTest {
    private static final Path FOLDER = Path.of(System.getenv().getOrDefault("SQ_TEST_DIR", "../../build/bindings"));
    private static final List<String> TEXTS = lines("texts.txt");

    private static List<String> lines(String name) {
        try {
            return Files.readAllLines(FOLDER.resolve(name));
        } catch (IOException e) {
            throw new IllegalStateException("`bash tests/test-bindings.sh --models-only` makes " + name, e);
        }
    }

    private static String bits(float x) {
        return HexFormat.of().toHexDigits(Float.floatToRawIntBits(x));
    }

    private static String row(float[] vector) {
        List<String> row = new ArrayList<>();
        for (float x : vector) {
            row.add(bits(x));
        }
        return String.join(" ", row);
    }

    private static <T> List<String> each(List<T> items, Function<T, String> line) {
        return items.stream().map(line).collect(Collectors.toList());
    }

    private static Model model(String name) {
        return Model.load(FOLDER.resolve(name), new LoadOptions(false, true, false, null));
    }

    private static int bytesBefore(String text, int offset) {
        return text.substring(0, offset).getBytes(StandardCharsets.UTF_8).length;
    }

    private static SqException fails(Status status, Executable call) {
        SqException failed = assertThrows(SqException.class, call);
        assertEquals(status, failed.status(), failed.getMessage());
        return failed;
    }

    // ---- the same as C ----

    @Test
    void tokenize() {
        try (Model m = model("embed.sq")) {
            List<String> expected = lines("tokens.txt");
            for (int i = 0; i < TEXTS.size(); i++) {
                String text = TEXTS.get(i);
                List<String> got = each(m.tokenize(text, TextOptions.DEFAULT),
                    t -> t.id() + "," + t.type() + "," + bytesBefore(text, t.start()) + "," + bytesBefore(text, t.end()));
                assertEquals(expected.get(i), String.join(" ", got));
            }
            List<Integer> sources = m.tokenize("a", "", TextOptions.DEFAULT).stream().map(Token::source).toList();
            assertEquals(List.of(-1, 0, -1, -1), sources);
        }
    }

    @Test
    void embed() {
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            assertEquals(lines("embed.txt"), each(c.embed(TEXTS), SqTest::row));
            assertTrue(c.embed(List.of()).isEmpty());
            EmbedOptions eight = new EmbedOptions(TextOptions.DEFAULT, EmbedOptions.Pooling.MEAN, EmbedOptions.Normalize.NO, 8);
            assertEquals(each(lines("embed.txt"), line -> line.substring(0, 8 * 9 - 1)), each(c.embed(TEXTS, eight), SqTest::row));
            EmbedOptions unit = new EmbedOptions(TextOptions.DEFAULT, EmbedOptions.Pooling.MODEL, EmbedOptions.Normalize.YES, 0);
            double sum = 0;
            for (float x : c.embed(List.of("a cat"), unit).get(0)) {
                sum += (double) x * x;
            }
            assertEquals(1, sum, 1e-5);
        }
    }

    @Test
    void classify() {
        try (Model m = model("classify.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            assertEquals(List.of("entailment", "neutral", "contradiction"), m.labels());
            assertEquals(Model.Head.CLASSIFY, m.info().head());
            List<Classes> classes = c.classify(TEXTS);
            assertEquals(lines("scores.txt"), each(classes, x -> row(x.scores())));
            assertEquals(lines("logits.txt"), each(classes, x -> row(x.logits())));
            for (Classes x : classes) {
                float[] sorted = x.scores().clone();
                Arrays.sort(sorted);
                assertEquals(sorted[2], x.scores()[x.best()]);
            }
            List<String> next = new ArrayList<>(TEXTS);
            Collections.rotate(next, -1);
            assertEquals(lines("pairs.txt"), each(c.classify(TEXTS, next, TextOptions.TRUNCATE), x -> row(x.logits())));
            assertThrows(IllegalArgumentException.class, () -> c.classify(List.of("a"), List.of(), TextOptions.DEFAULT));
        }
    }

    @Test
    void rerank() {
        try (Model m = model("score.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            List<Ranked> ranked = c.rerank(TEXTS.get(0), TEXTS, TextOptions.DEFAULT);
            assertEquals(lines("rerank.txt"), each(ranked, r -> r.document() + " " + bits(r.score())));
        }
    }

    @Test
    void answer() {
        String context = String.join(" ", TEXTS);
        try (Model m = model("answer.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            List<Answer> answers = c.answer(TEXTS.get(0), context, AnswerOptions.DEFAULT);
            assertEquals(lines("answer.txt"), each(answers,
                a -> bytesBefore(context, a.start()) + " " + bytesBefore(context, a.end()) + " " + bits(a.score()) + " " + bits(a.probability())));
            assertTrue(c.answer("who", "", AnswerOptions.DEFAULT).isEmpty());
            List<Answer> orNone = c.answer("who", "a cat", new AnswerOptions(0, 0, 0, true, false));
            assertTrue(orNone.stream().anyMatch(a -> a.start() == 0 && a.end() == 0));
        }
    }

    @Test
    void tag() {
        try (Model m = model("tag.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            assertEquals(lines("tag.txt"), each(c.tag(TEXTS, false, TextOptions.DEFAULT), SqTest::line));
            assertEquals(lines("words.txt"), each(c.tag(TEXTS, true, TextOptions.DEFAULT), SqTest::line));
            assertEquals(60, c.tag(List.of("a ".repeat(60)), true, TextOptions.DEFAULT).size()); // more than the first buffer holds
        }
    }

    private static String line(Entity e) {
        String text = TEXTS.get(e.text());
        return String.format("%d %d %d %d %s %s", e.text(), bytesBefore(text, e.start()), bytesBefore(text, e.end()), e.words(), bits(e.score()), e.label());
    }

    // ---- texts ----

    @Test
    void loneSurrogates() {
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            List<float[]> got = c.embed(List.of("a\ud800cat\udfff\udfff", "a\ufffdcat\ufffd\ufffd", "a\0cat", "a cat"));
            assertArrayEquals(got.get(1), got.get(0));
            String text = "\ud800 \ud83d\udc15 dog";
            assertTrue(m.tokenize(text, TextOptions.DEFAULT).stream().anyMatch(t -> text.substring(t.start(), t.end()).equals("dog")));
        }
    }

    @Test
    void longTexts() {
        String text = "dog ".repeat(5000);
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            assertTrue(fails(Status.LIMIT, () -> c.embed(List.of("a", text))).getMessage().contains("5002 tokens"));
            assertTrue(fails(Status.LIMIT, () -> m.tokenize(text, TextOptions.DEFAULT)).getMessage().contains("5002"));
            EmbedOptions cut = new EmbedOptions(TextOptions.TRUNCATE, EmbedOptions.Pooling.MODEL, EmbedOptions.Normalize.MODEL, 0);
            List<float[]> got = c.embed(List.of(text, "dog ".repeat(62)), cut);
            assertArrayEquals(got.get(1), got.get(0));
            assertEquals(5002, m.tokenize(text, new TextOptions(TextOptions.NO_LIMIT, false, false)).size());
        }
    }

    // ---- errors and closing ----

    /** Sizes and offsets as the compiler of sq.h has them. */
    @Test
    void layouts() {
        List<String> got = new ArrayList<>();
        Map<String, StructLayout> layouts = new LinkedHashMap<>();
        layouts.put("sq_model_params", Native.MODEL_PARAMS);
        layouts.put("sq_model_info", Native.MODEL_INFO);
        layouts.put("sq_ctx_params", Native.CTX_PARAMS);
        layouts.put("sq_texts", Native.TEXTS);
        layouts.put("sq_answer_span", Native.ANSWER_SPAN);
        layouts.put("sq_entity", Native.ENTITY);
        layouts.forEach((name, layout) -> got.add(name + " " + layout.byteSize() + offsets(layout)));
        assertEquals(lines("structs.txt"), got);
    }

    private static String offsets(StructLayout layout) {
        StringBuilder offsets = new StringBuilder();
        for (MemoryLayout field : layout.memberLayouts()) {
            long offset = Native.offset(layout, field.name().orElseThrow());
            long n = field instanceof SequenceLayout numbers ? numbers.elementCount() : 1;
            for (int i = 0; i < n; i++) {
                offsets.append(' ').append(offset + i * field.byteSize() / n);
            }
        }
        return offsets.toString();
    }

    /** Another thread empties and fills the list: each call gets what the list was at one moment, or the list's own exception. */
    @Test
    void aListThatChanges() throws Exception {
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.ONE_THREAD)) {
            String expected = lines("embed.txt").get(0);
            List<String> texts = Collections.synchronizedList(new ArrayList<>());
            AtomicBoolean done = new AtomicBoolean();
            Thread changer = Thread.ofPlatform().start(() -> {
                while (!done.get()) {
                    texts.addAll(Collections.nCopies(50, TEXTS.get(0)));
                    texts.clear();
                }
            });
            for (int i = 0; i < 300; i++) {
                c.embed(texts).forEach(vector -> assertEquals(expected, row(vector)));
            }
            done.set(true);
            changer.join();
        }
    }

    @Test
    void errors() {
        assertTrue(fails(Status.IO, () -> Model.load(Path.of("no/such/file.sq"))).getMessage().contains("no/such/file.sq"));
        fails(Status.FORMAT, () -> model("texts.txt"));
        fails(Status.CPU, () -> Model.load(FOLDER.resolve("embed.sq"), new LoadOptions(false, false, false, "abacus")));
        fails(Status.ARG, () -> Model.load(FOLDER.resolve("embed.sq"), new LoadOptions(false, false, false, "avx2\0")));
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.DEFAULT)) {
            assertTrue(fails(Status.TASK, () -> c.classify(List.of("a"))).getMessage().contains("no head"));
            EmbedOptions wide = new EmbedOptions(TextOptions.DEFAULT, EmbedOptions.Pooling.MODEL, EmbedOptions.Normalize.MODEL, 65);
            fails(Status.ARG, () -> c.embed(List.of("a"), wide));
            fails(Status.LIMIT, () -> m.newContext(new ContextOptions(0, -1, 0, false)));
            assertTrue(!Model.libraryVersion().isEmpty() && !m.isa().isEmpty());
        }
    }

    @Test
    void closing() {
        Model m = model("embed.sq");
        Context c = m.newContext(ContextOptions.DEFAULT);
        m.use(handle -> fails(Status.BUSY, m::close)); // within a call
        m.close();
        m.close(); // which does nothing
        fails(Status.CLOSED, () -> m.tokenize("a", TextOptions.DEFAULT));
        fails(Status.CLOSED, () -> m.newContext(ContextOptions.DEFAULT));
        assertEquals(lines("embed.txt").get(0), row(c.embed(TEXTS.subList(0, 1)).get(0)));
        c.close();
        c.cancel();
        c.close();
        fails(Status.CLOSED, () -> c.embed(List.of("a")));
    }

    @Test
    void closingWhileACallRuns() throws Exception {
        try (Model m = model("embed.sq"); ExecutorService threads = Executors.newCachedThreadPool()) {
            Context c = m.newContext(ContextOptions.DEFAULT);
            Future<Status> running = threads.submit(() -> {
                Status status = Status.BUSY;
                while (status == Status.BUSY) { // by the short calls below
                    status = assertThrows(SqException.class, () -> c.embed(Collections.nCopies(200_000, ""))).status(); // takes seconds
                }
                return status;
            });
            while (!isBusy(c)) {
                Thread.sleep(1);
            }
            fails(Status.BUSY, c::close);
            while (!running.isDone()) {
                c.cancel(); // before the call has reached the library it has no effect
                Thread.sleep(1);
            }
            assertEquals(Status.CANCEL, running.get());
            c.close();
        }
    }

    private static boolean isBusy(Context c) {
        try {
            c.embed(List.of("a"));
            return false;
        } catch (SqException failed) {
            return failed.status() == Status.BUSY;
        }
    }

    // ---- many threads ----

    private static void onThreads(int n, java.util.function.IntConsumer work) throws Exception {
        try (ExecutorService threads = Executors.newFixedThreadPool(n)) {
            List<Future<?>> all = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                int thread = i;
                all.add(threads.submit(() -> work.accept(thread)));
            }
            for (Future<?> one : all) {
                try {
                    one.get();
                } catch (ExecutionException failed) {
                    throw new AssertionError(failed.getCause());
                }
            }
        }
    }

    @Test
    void pool() throws Exception {
        List<String> expected = lines("embed.txt");
        try (Model m = model("embed.sq")) {
            Pool pool = new Pool(m, 2, ContextOptions.ONE_THREAD);
            onThreads(16, thread -> {
                for (int i = 0; i < 50; i++) {
                    int first = (thread + i) % TEXTS.size();
                    try (Pool.Lent lent = pool.lend()) {
                        List<float[]> got = lent.context().embed(TEXTS.subList(first, TEXTS.size()));
                        assertEquals(expected.subList(first, TEXTS.size()), each(got, SqTest::row));
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                }
            });
            Pool.Lent lent = pool.lend();
            Context kept = lent.context();
            fails(Status.BUSY, pool::close);
            try (Pool.Lent other = pool.tryLend()) {
                assertNotNull(other);
                assertNull(pool.tryLend());
            }
            lent.close();
            lent.close();
            fails(Status.CLOSED, lent::context);
            pool.close();
            pool.close();
            fails(Status.CLOSED, pool::lend);
            fails(Status.CLOSED, pool::tryLend);
            fails(Status.CLOSED, () -> kept.embed(List.of("a")));
        }
    }

    /** Each call either gives the right bits or is refused. */
    @Test
    void oneContextManyThreads() throws Exception {
        List<String> expected = lines("embed.txt");
        try (Model m = model("embed.sq"); Context c = m.newContext(ContextOptions.ONE_THREAD)) {
            onThreads(8, thread -> {
                for (int i = 0; i < 200; i++) {
                    int text = i % TEXTS.size();
                    try {
                        assertEquals(expected.get(text), row(c.embed(TEXTS.subList(text, text + 1)).get(0)));
                    } catch (SqException failed) {
                        assertEquals(Status.BUSY, failed.status());
                    }
                }
            });
        }
    }
}
