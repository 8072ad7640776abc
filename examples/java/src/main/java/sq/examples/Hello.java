package sq.examples;

import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import sq.Context;
import sq.ContextOptions;
import sq.Model;
import sq.SqException;

/** How alike are two texts? sq from Java in one page: Hello MODEL.sq TEXT TEXT. */
public final class Hello {
    private Hello() {}

    public static void main(String[] arguments) {
        if (arguments.length != 3) {
            System.err.println("usage: Hello MODEL.sq TEXT TEXT");
            System.exit(2);
        }
        try (Model model = Model.load(Path.of(arguments[0])); Context context = model.newContext(ContextOptions.DEFAULT)) {
            List<float[]> vectors = context.embed(List.of(arguments[1], arguments[2]));
            System.out.printf(Locale.ROOT, "cosine similarity %.4f%n", cosine(vectors.get(0), vectors.get(1)));
        } catch (SqException failed) {
            System.err.println("hello: " + failed.getMessage());
            System.exit(1);
        }
    }

    private static double cosine(float[] x, float[] y) {
        double lengths = Math.sqrt(dot(x, x) * dot(y, y));
        return lengths > 0 ? dot(x, y) / lengths : 0;
    }

    private static double dot(float[] x, float[] y) {
        double sum = 0;
        for (int i = 0; i < x.length; i++) {
            sum += (double) x[i] * y[i];
        }
        return sum;
    }
}
