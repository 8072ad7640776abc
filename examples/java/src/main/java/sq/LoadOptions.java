package sq;

/**
 * How a model file is opened.
 *
 * @param copy read the file into private memory, so that later changes to it cannot reach this process
 * @param verify check every tensor's checksum
 * @param hugePages as copy, in large pages where the kernel has them
 * @param isa the highest instruction set to use, such as "avx2"; null: the best
 */
public record LoadOptions(boolean copy, boolean verify, boolean hugePages, String isa) {
    public static final LoadOptions DEFAULT = new LoadOptions(false, false, false, null);
}
