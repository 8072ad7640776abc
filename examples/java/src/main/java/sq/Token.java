package sq;

/**
 * A piece of a text.
 *
 * @param type the segment
 * @param start first char of the string that it came from; start and end are 0 for special tokens that sq added
 * @param source 0: the first text, 1: the second, -1: a special token that sq added
 */
public record Token(int id, int type, int start, int end, int source) {}
