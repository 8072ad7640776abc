package sq.examples;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import sq.Context;
import sq.ContextOptions;
import sq.Model;
import sq.TextOptions;

/**
 * What a call from Java takes longer than from C, for a text of 16 tokens on one thread: Overhead FOLDER MODEL.sq [ROUNDS].
 *
 * <p>FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of its own. Both run in alternation, a
 * block of calls each; medians of the blocks' medians, and of their differences.
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
        Process inC = new ProcessBuilder(Path.of(arguments[0], "call").toString(), path, TEXT).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (Model model = Model.load(Path.of(path)); Context context = model.newContext(new ContextOptions(1, 0, 0, true));
                PrintStream questions = new PrintStream(inC.getOutputStream(), true); BufferedReader answers = inC.inputReader()) {
            if (model.tokenize(TEXT, TextOptions.DEFAULT).size() != 16) {
                throw new IllegalStateException("the text has not 16 tokens");
            }
            double first = blockInC(questions, answers, 50);
            int n = (int) Math.max(10, BLOCK_NS / first);
            block(context, (int) Math.min(WARM_UP_CALLS, WARM_UP_NS / first));
            double[] c = new double[rounds];
            double[] more = new double[rounds];
            for (int i = 0; i < rounds; i++) {
                c[i] = blockInC(questions, answers, n);
                more[i] = block(context, n) - c[i];
            }
            double overhead = median(more);
            System.out.printf(Locale.ROOT, "C %.2f us, Java %.2f us: overhead %.2f us, %.2f %%%n", median(c) / 1e3, (median(c) + overhead) / 1e3,
                overhead / 1e3, 100 * overhead / median(c));
        }
    }

    /** Median nanoseconds of n calls. */
    private static double block(Context context, int n) {
        List<String> texts = List.of(TEXT);
        double[] times = new double[n];
        for (int i = 0; i < n; i++) {
            long start = System.nanoTime();
            context.embed(texts);
            times[i] = System.nanoTime() - start;
        }
        return median(times);
    }

    private static double blockInC(PrintStream questions, BufferedReader answers, int n) throws IOException {
        questions.println(n);
        return Double.parseDouble(answers.readLine());
    }

    private static double median(double[] x) {
        double[] sorted = x.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
