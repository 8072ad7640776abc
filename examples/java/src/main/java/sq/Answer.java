package sq;

/**
 * A part of a context that answers a question.
 *
 * @param start first char of the context, and end one past the last
 */
public record Answer(int start, int end, float score, float probability) {}
