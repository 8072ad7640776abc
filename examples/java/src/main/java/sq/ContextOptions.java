package sq;

/**
 * How large a context is and how it works; 0 means the default.
 *
 * @param threads threads that compute, the caller's included; 0: the physical cores that the process may use
 * @param maxTokens most tokens that run together
 * @param maxTexts most texts that run together
 * @param noTuning take the default plan of each shape, try nothing
 */
public record ContextOptions(int threads, int maxTokens, int maxTexts, boolean noTuning) {
    public static final ContextOptions DEFAULT = new ContextOptions(0, 0, 0, false);
    public static final ContextOptions ONE_THREAD = new ContextOptions(1, 0, 0, false);
}
