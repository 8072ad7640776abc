package sq;

/** The library's codes, and {@link #CLOSED}, which is this package's. */
public enum Status {
    /** An argument is out of range or inconsistent. */
    ARG(-1),
    /** The operating system refused: open, map, read. */
    IO(-2),
    /** The model file is damaged or is no model file. */
    FORMAT(-3),
    /** The file is newer than the library, or the library older than this package. */
    VERSION(-4),
    /** This machine lacks the instruction set asked for. */
    CPU(-5),
    /** Out of memory, or a worker thread could not be started. */
    MEM(-6),
    /** A buffer was too small; this package makes room by itself. */
    SPACE(-7),
    /** The input is longer than the model or the context allows. */
    LIMIT(-8),
    /** The model has no head for this task. */
    TASK(-9),
    /** A fault of the library. */
    INTERNAL(-10),
    /** Another call is running. */
    BUSY(-11),
    /** A NaN or an infinity came out. */
    NUMERIC(-12),
    /** {@link Context#cancel} stopped the call. */
    CANCEL(-13),
    /** Used after close(). */
    CLOSED(1);

    private final int code;

    Status(int code) {
        this.code = code;
    }

    static Status of(int code) {
        for (Status status : values()) {
            if (status.code == code) {
                return status;
            }
        }
        return INTERNAL;
    }
}
