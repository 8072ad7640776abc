package sq;

/**
 * How a context is searched; 0 means the default.
 *
 * @param window most tokens of a window, question included
 * @param stride tokens that two windows share
 * @param maxAnswer most tokens of an answer
 * @param allowNull "no answer" competes, as start = end = 0
 */
public record AnswerOptions(int window, int stride, int maxAnswer, boolean allowNull, boolean specialsAsText) {
    public static final AnswerOptions DEFAULT = new AnswerOptions(0, 0, 0, false, false);
}
