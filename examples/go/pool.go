package sq

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pool lends contexts of one model to any number of goroutines.
type Pool struct {
	free   chan *Context // those that are not lent; has room for all
	closed chan struct{} // closed by Close
	mu     sync.Mutex    // held by Close
}

// NewPool makes n contexts, at least one. Many contexts of one thread give the most texts a second, few contexts of many threads the shortest calls.
func NewPool(m *Model, n int, o ContextOptions) (*Pool, error) {
	p := &Pool{free: make(chan *Context, max(n, 1)), closed: make(chan struct{})}
	for i := 0; i < cap(p.free); i++ {
		c, err := m.NewContext(o)
		if err != nil {
			return nil, errors.Join(err, closeAll(p.takeIdle()))
		}
		p.free <- c
	}
	return p, nil
}

// Do runs use with a context that is the caller's until it returns, after waiting for one. When ctx is done, waiting ends with its error, and a call that
// runs on the context ends with the status Cancel.
func (p *Pool) Do(ctx context.Context, use func(*Context) error) error {
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer func() { p.free <- c }()
	ended, cancelled := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.cancelUntil(ended)
		close(cancelled)
	})
	defer func() {
		close(ended)
		if !stop() {
			<-cancelled // or it would reach the next borrower's call
		}
	}()
	return use(c)
}

// cancelUntil cancels what runs on the context, and what is about to run, until the channel is closed.
func (c *Context) cancelUntil(ended <-chan struct{}) {
	for {
		c.Cancel()
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *Pool) take(ctx context.Context) (*Context, error) {
	select {
	case <-p.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	default:
	}
	select {
	case c := <-p.free:
		return c, nil
	case <-p.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close closes all contexts. Busy while one is lent, and then nothing is closed.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return ErrClosed
	default:
	}
	idle := p.takeIdle()
	if len(idle) < cap(p.free) {
		p.putBack(idle)
		return errBusy("a context of the pool")
	}
	close(p.closed)
	return closeAll(idle)
}

// takeIdle takes the contexts that are not lent, without waiting.
func (p *Pool) takeIdle() []*Context {
	var idle []*Context
	for {
		select {
		case c := <-p.free:
			idle = append(idle, c)
		default:
			return idle
		}
	}
}

func (p *Pool) putBack(contexts []*Context) {
	for _, c := range contexts {
		p.free <- c
	}
}

func closeAll(contexts []*Context) error {
	var failed []error
	for _, c := range contexts {
		failed = append(failed, c.Close())
	}
	return errors.Join(failed...)
}
