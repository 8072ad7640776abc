package sq;

/**
 * A labelled part of a text.
 *
 * @param text index of the text
 * @param start first char of the text, and end one past the last
 */
public record Entity(int text, String label, int start, int end, float score, int words) {}
