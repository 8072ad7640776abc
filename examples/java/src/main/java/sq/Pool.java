package sq;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Lends contexts of one model to any number of threads. Many contexts of one thread give the most texts a second, few contexts of many threads the shortest
 * calls.
 */
public final class Pool implements AutoCloseable {
    private final Deque<Context> free = new ArrayDeque<>(); // those that are not lent; this object is the lock
    private final int size;
    private boolean closed;

    public Pool(Model model, int size, ContextOptions options) {
        this.size = Math.max(size, 1);
        try {
            while (free.size() < this.size) {
                free.push(model.newContext(options));
            }
        } catch (Throwable failed) {
            free.forEach(Context::close);
            throw failed;
        }
    }

    /** A context of the pool, until it is closed, which gives it back. */
    public final class Lent implements AutoCloseable {
        private Context context; // null when it is back

        private Lent(Context context) {
            this.context = context;
        }

        public Context context() {
            if (context == null) {
                throw new SqException(Status.CLOSED, "the context is back in the pool");
            }
            return context;
        }

        @Override
        public void close() {
            synchronized (Pool.this) {
                if (context != null) {
                    giveBack(context);
                    context = null;
                }
            }
        }
    }

    /** Lends a context, after waiting for one. */
    public synchronized Lent lend() throws InterruptedException {
        while (free.isEmpty() && !closed) {
            wait();
        }
        if (closed) {
            throw new SqException(Status.CLOSED, "the pool is used after close");
        }
        return new Lent(free.pop());
    }

    /** Lends a context if one is free, or else null. */
    public synchronized Lent tryLend() {
        if (closed) {
            throw new SqException(Status.CLOSED, "the pool is used after close");
        }
        return free.isEmpty() ? null : new Lent(free.pop());
    }

    private synchronized void giveBack(Context context) {
        free.push(context);
        notify();
    }

    /** Closes all contexts, once. {@link Status#BUSY} while one is lent, and then nothing is closed. */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        if (free.size() < size) {
            throw new SqException(Status.BUSY, "a context of the pool is in use");
        }
        closed = true;
        notifyAll();
        RuntimeException failed = null; // of a context that somebody uses without having it
        for (Context context : free) {
            try {
                context.close();
            } catch (SqException inUse) {
                failed = inUse;
            }
        }
        if (failed != null) {
            throw failed;
        }
    }
}
