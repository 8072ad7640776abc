package sq.examples;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import sq.Context;
import sq.ContextOptions;
import sq.Model;
import sq.TextOptions;

/**
 * What a call from Java takes longer than from C, for a text of 16 tokens on one thread: Overhead FOLDER MODEL.sq [ROUNDS].
 *
 * <p>FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of its own. Both run in alternation, a
 * block of calls each. What Java adds is the median, and the quartiles, of the rounds' differences of the blocks' medians; and the difference of the fastest
 * calls of all, which other work on the machine disturbs least.
 */
public final class Overhead {
    private static final String TEXT = "the dog and the cat sleep in the old house by the a a"; // 16 tokens in the tests' and in English vocabularies
    private static final double BLOCK_NS = 3e7;
    private static final int WARM_UP_CALLS = 20_000; // for the just-in-time compiler
    private static final double WARM_UP_NS = 5e9;

    private Overhead() {}

    public static void main(String[] arguments) throws IOException {
        String path = arguments[1];
        int rounds = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 100;
        Process call = new ProcessBuilder(Path.of(arguments[0], "call").toString(), path, TEXT).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (Model model = Model.load(Path.of(path)); Context context = model.newContext(new ContextOptions(1, 0, 0, true));
                PrintStream questions = new PrintStream(call.getOutputStream(), true); BufferedReader answers = call.inputReader()) {
            if (model.tokenize(TEXT, TextOptions.DEFAULT).size() != 16) {
                throw new IllegalStateException("the text has not 16 tokens");
            }
            double first = blockInC(questions, answers, 50).median();
            int n = (int) Math.max(10, BLOCK_NS / first);
            block(context, (int) Math.min(WARM_UP_CALLS, WARM_UP_NS / first));
            List<Times> inC = new ArrayList<>();
            List<Times> inJava = new ArrayList<>();
            for (int i = 0; i < rounds; i++) {
                inC.add(blockInC(questions, answers, n));
                inJava.add(block(context, n));
            }
            report(inC, inJava);
        }
    }

    /** Nanoseconds of a block's calls. */
    private record Times(double median, double fastest) {}

    private static void report(List<Times> inC, List<Times> inJava) {
        double c = quantile(inC.stream().mapToDouble(Times::median), .5) / 1e3;
        double[] more = IntStream.range(0, inC.size()).mapToDouble(i -> (inJava.get(i).median() - inC.get(i).median()) / 1e3).sorted().toArray();
        double median = quantile(Arrays.stream(more), .5);
        System.out.printf(Locale.ROOT, "C %.2f us; more from Java: %.2f us (%.2f to %.2f), %.2f %%%n", c, median, quantile(Arrays.stream(more), .25),
            quantile(Arrays.stream(more), .75), 100 * median / c);
        double fastest = quantile(inC.stream().mapToDouble(Times::fastest), 0) / 1e3;
        System.out.printf(Locale.ROOT, "fastest: C %.2f us; more from Java: %.2f us%n", fastest,
            quantile(inJava.stream().mapToDouble(Times::fastest), 0) / 1e3 - fastest);
    }

    private static Times block(Context context, int n) {
        List<String> texts = List.of(TEXT);
        double[] times = new double[n];
        for (int i = 0; i < n; i++) {
            long start = System.nanoTime();
            context.embed(texts);
            times[i] = System.nanoTime() - start;
        }
        return new Times(quantile(Arrays.stream(times), .5), quantile(Arrays.stream(times), 0));
    }

    private static Times blockInC(PrintStream questions, BufferedReader answers, int n) throws IOException {
        questions.println(n);
        String[] numbers = answers.readLine().split(" ");
        return new Times(Double.parseDouble(numbers[0]), Double.parseDouble(numbers[1]));
    }

    private static double quantile(DoubleStream x, double q) {
        double[] sorted = x.sorted().toArray();
        return sorted[(int) (q * (sorted.length - 1))];
    }
}
