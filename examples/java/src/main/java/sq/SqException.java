package sq;

/** A failed call: its status, and the library's sentence about the cause. */
public final class SqException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final Status status;

    SqException(Status status, String text) {
        super(text);
        this.status = status;
    }

    /** What kind of failure it is. */
    public Status status() {
        return status;
    }
}
