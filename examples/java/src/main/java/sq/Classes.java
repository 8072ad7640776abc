package sq;

/**
 * What a model says about a text: an entry for each label. The arrays are the caller's.
 *
 * @param scores softmax of the logits; sigmoids for a multi-label model and for one label
 */
public record Classes(float[] scores, float[] logits) {
    /** The index of the highest score, for {@link Model#labels}. */
    public int best() {
        int best = 0;
        for (int i = 1; i < scores.length; i++) {
            best = scores[i] > scores[best] ? i : best;
        }
        return best;
    }
}
