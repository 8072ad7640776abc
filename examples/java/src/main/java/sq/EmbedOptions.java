package sq;

/**
 * How texts become vectors.
 *
 * @param dimensions keep the first so many entries of each vector; 0: all
 */
public record EmbedOptions(TextOptions text, Pooling pooling, Normalize normalize, int dimensions) {
    public static final EmbedOptions DEFAULT = new EmbedOptions(TextOptions.DEFAULT, Pooling.MODEL, Normalize.MODEL, 0);

    /** How a text's vector is made of its tokens'; MODEL: as the checkpoint says. In the order of sq.h. */
    public enum Pooling { MODEL, MEAN, CLS, MAX }

    /** Whether vectors are scaled to length 1; MODEL: as the checkpoint says. In the order of sq.h. */
    public enum Normalize { MODEL, YES, NO }
}
