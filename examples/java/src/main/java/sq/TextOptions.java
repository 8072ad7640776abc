package sq;

/**
 * How texts become tokens.
 *
 * @param maxLength most tokens, special tokens included; 0: the model's maxTokens; {@link #NO_LIMIT}: as many as the position table allows
 * @param truncate cut longer texts; otherwise they are {@link Status#LIMIT}
 * @param specialsAsText "[SEP]" in a text is five characters, not the special token
 */
public record TextOptions(int maxLength, boolean truncate, boolean specialsAsText) {
    public static final int NO_LIMIT = -1;
    public static final TextOptions DEFAULT = new TextOptions(0, false, false);
    public static final TextOptions TRUNCATE = new TextOptions(0, true, false);
}
