package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// batching says how requests are gathered.
type batching struct {
	maxTexts int           // a batch that has so many takes no more requests; the last request may bring it over
	maxWait  time.Duration // how long a batch waits for more; 0: it takes what is in the queue at once
	queue    int           // requests that may wait
}

// errFull refuses a request: the queue has no room. errClosed does when the batcher has ended.
var (
	errFull   = errors.New("the queue is full")
	errClosed = errors.New("the server ends")
)

// job is a request in the queue.
type job struct {
	ctx   context.Context // of whoever waits for the answer
	texts []string
	done  chan answer // has room for the answer, so that nobody waits for one who has left
}

type answer struct {
	rows [][]float32 // a vector or scores for each text
	err  error
}

// batcher runs requests together. Workers, as many as batches run at once, each gather a batch from the queue, run it, and hand out the answers. Any
// goroutine may call do and close at any time.
type batcher struct {
	mu      sync.RWMutex // read-locked by who puts a job into the queue, locked by close
	closed  bool
	limits  batching
	queue   chan *job
	run     func(texts []string) ([][]float32, error)
	sizes   *histogram // texts of each batch
	n       int        // workers
	workers sync.WaitGroup
}

func newBatcher(limits batching, workers int, run func([]string) ([][]float32, error), sizes *histogram) *batcher {
	b := &batcher{limits: limits, queue: make(chan *job, limits.queue), run: run, sizes: sizes, n: workers}
	for i := 0; i < workers; i++ {
		b.workers.Add(1)
		go b.work()
	}
	return b
}

// do waits for the answer to a request, unless the queue is full or ctx is done.
func (b *batcher) do(ctx context.Context, texts []string) ([][]float32, error) {
	j := &job{ctx, texts, make(chan answer, 1)}
	if err := b.put(j); err != nil {
		return nil, err
	}
	select {
	case a := <-j.done:
		return a.rows, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *batcher) put(j *job) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return errClosed
	}
	select {
	case b.queue <- j:
		return nil
	default:
		return errFull
	}
}

// waiting is how many requests are in the queue.
func (b *batcher) waiting() int { return len(b.queue) }

// full says that a request would be refused now.
func (b *batcher) full() bool { return len(b.queue) == cap(b.queue) }

// close refuses what comes from now on, and ends the workers when the queue is empty.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	close(b.queue)
	b.mu.Unlock()
	b.workers.Wait()
}

func (b *batcher) work() {
	defer b.workers.Done()
	for first := range b.queue {
		b.answer(b.gather(first))
	}
}

// gather makes a batch of a request and of those behind it: of all that come in time, or without a wait of this worker's share of the queue, so that no worker is
// idle while another one has a long batch.
func (b *batcher) gather(first *job) []*job {
	jobs, texts, share := []*job{first}, len(first.texts), 1+len(b.queue)/b.n
	var timeout <-chan time.Time
	if b.limits.maxWait > 0 {
		timer := time.NewTimer(b.limits.maxWait)
		defer timer.Stop()
		timeout = timer.C
	}
	for texts < b.limits.maxTexts && (timeout != nil || len(jobs) < share) {
		j := b.next(timeout)
		if j == nil {
			break
		}
		jobs, texts = append(jobs, j), texts+len(j.texts)
	}
	return jobs
}

// next takes a request from the queue, nil when none comes in time. Without a timeout it does not wait.
func (b *batcher) next(timeout <-chan time.Time) *job {
	select {
	case j := <-b.queue:
		return j
	default:
	}
	if timeout == nil {
		return nil
	}
	select {
	case j := <-b.queue: // nil when the queue is closed
		return j
	case <-timeout:
		return nil
	}
}

// answer runs a batch. Requests whose client has left are dropped.
func (b *batcher) answer(jobs []*job) {
	var texts []string
	var kept []*job
	for _, j := range jobs {
		if j.ctx.Err() == nil {
			kept, texts = append(kept, j), append(texts, j.texts...)
		}
	}
	if len(kept) == 0 {
		return
	}
	b.sizes.add(float64(len(texts)))
	rows, err := b.run(texts)
	for _, j := range kept {
		if err != nil {
			j.done <- answer{err: err}
			continue
		}
		j.done <- answer{rows: rows[:len(j.texts)]}
		rows = rows[len(j.texts):]
	}
}
