package main

import (
	"fmt"
	"io"
	"sort"
	"sync"
	"time"
)

// metrics counts what the server does, and writes it as Prometheus reads it.
type metrics struct {
	mu        sync.Mutex
	requests  map[requestKind]uint64
	latencies map[string]*histogram // seconds, of a task's requests that were answered with 200
	batches   map[string]*histogram // texts
}

type requestKind struct {
	task string
	code int
}

func newMetrics() *metrics {
	return &metrics{requests: map[requestKind]uint64{}, latencies: map[string]*histogram{}, batches: map[string]*histogram{}}
}

// batch makes the histogram of a task's batches.
func (m *metrics) batch(task string) *histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches[task] = newHistogram(1, 2, 4, 8, 16, 32, 64)
	m.latencies[task] = newHistogram(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	return m.batches[task]
}

func (m *metrics) request(task string, code int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[requestKind{task, code}]++
	if code == 200 {
		m.latencies[task].add(took.Seconds())
	}
}

func (m *metrics) write(w io.Writer, tasks []*task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintln(w, "# TYPE sq_requests_total counter")
	for _, kind := range sortedKinds(m.requests) {
		fmt.Fprintf(w, "sq_requests_total{task=%q,code=\"%d\"} %d\n", kind.task, kind.code, m.requests[kind])
	}
	fmt.Fprintln(w, "# TYPE sq_queue_requests gauge")
	for _, t := range tasks {
		fmt.Fprintf(w, "sq_queue_requests{task=%q} %d\n", t.name, t.batch.waiting())
	}
	fmt.Fprintln(w, "# TYPE sq_request_seconds histogram")
	for _, t := range tasks {
		m.latencies[t.name].write(w, "sq_request_seconds", t.name)
	}
	fmt.Fprintln(w, "# TYPE sq_batch_texts histogram")
	for _, t := range tasks {
		m.batches[t.name].write(w, "sq_batch_texts", t.name)
	}
}

func sortedKinds(requests map[requestKind]uint64) []requestKind {
	var kinds []requestKind
	for kind := range requests {
		kinds = append(kinds, kind)
	}
	sort.Slice(kinds, func(i, j int) bool {
		if kinds[i].task != kinds[j].task {
			return kinds[i].task < kinds[j].task
		}
		return kinds[i].code < kinds[j].code
	})
	return kinds
}

// histogram counts values by upper bounds. Any goroutine may use it.
type histogram struct {
	mu     sync.Mutex
	bounds []float64
	counts []uint64 // values up to each bound and above the one before; the last: above all
	sum    float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) add(x float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[sort.SearchFloat64s(h.bounds, x)]++
	h.sum += x
}

func (h *histogram) write(w io.Writer, name, task string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var n uint64
	for i, bound := range h.bounds {
		n += h.counts[i]
		fmt.Fprintf(w, "%s_bucket{task=%q,le=\"%v\"} %d\n", name, task, bound, n)
	}
	n += h.counts[len(h.bounds)]
	fmt.Fprintf(w, "%s_bucket{task=%q,le=\"+Inf\"} %d\n", name, task, n)
	fmt.Fprintf(w, "%s_sum{task=%q} %v\n%s_count{task=%q} %d\n", name, task, h.sum, name, task, n)
}
