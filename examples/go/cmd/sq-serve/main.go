// Command sq-serve answers over HTTP what texts mean: POST /embed gives their vectors, POST /classify their classes. README.md has the requests.
//
// Requests wait in a bounded queue and run together in small batches; when the queue is full, they are refused with 429. On SIGTERM or SIGINT the server
// takes no more requests, answers those it has, and ends.
//
// batcher.go gathers requests and runs them, handlers.go speaks HTTP, metrics.go counts; this file puts them together.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"example.com/sq"
)

type config struct {
	address                  string
	embedPath, classifyPath  string
	contexts, threads        int
	batch                    batching
	maxBodyBytes             int64
	maxTexts                 int
	requestTimeout, draining time.Duration
}

func parseFlags() config {
	var c config
	flag.StringVar(&c.address, "address", "127.0.0.1:8080", "where to listen")
	flag.StringVar(&c.embedPath, "embed", "", "model `file` for /embed")
	flag.StringVar(&c.classifyPath, "classify", "", "model `file` for /classify")
	flag.IntVar(&c.contexts, "contexts", runtime.NumCPU(), "batches of a model that run at once")
	flag.IntVar(&c.threads, "threads", 1, "threads of each")
	flag.IntVar(&c.batch.maxTexts, "max-batch", 16, "texts after which a batch takes no more requests")
	flag.DurationVar(&c.batch.maxWait, "max-wait", 0, "how long a batch waits for more requests than are in the queue")
	flag.IntVar(&c.batch.queue, "queue", 256, "requests that may wait; more get 429")
	flag.Int64Var(&c.maxBodyBytes, "max-body", 1<<20, "largest request in bytes; larger ones get 413")
	flag.IntVar(&c.maxTexts, "max-texts", 64, "most texts of a request")
	flag.DurationVar(&c.requestTimeout, "timeout", 10*time.Second, "how long a request may take; then it gets 503")
	flag.DurationVar(&c.draining, "drain", 30*time.Second, "how long requests may take to end when the server ends")
	flag.Parse()
	return c
}

// check refuses numbers with which nothing would ever be answered.
func (c config) check() error {
	if min(c.contexts, c.batch.maxTexts, c.batch.queue, c.maxTexts) < 1 || c.maxBodyBytes < 1 || c.requestTimeout <= 0 {
		return errors.New("-contexts, -max-batch, -queue, -max-texts, -max-body and -timeout must be above 0")
	}
	return nil
}

func main() {
	config := parseFlags()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := serve(ctx, config); err != nil {
		log.Fatal("sq-serve: ", err)
	}
}

// serve listens until ctx is done, then drains.
func serve(ctx context.Context, c config) error {
	s, err := newServer(c)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		return errors.Join(err, s.close())
	}
	h := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: c.requestTimeout, WriteTimeout: 2 * c.requestTimeout, IdleTimeout: time.Minute,
	}
	listening := make(chan error, 1)
	go func() { listening <- h.Serve(listener) }()
	log.Print("sq-serve: listening on ", listener.Addr())
	select {
	case err = <-listening:
	case <-ctx.Done():
		log.Print("sq-serve: draining")
		s.draining.Store(true)
		limit, cancel := context.WithTimeout(context.Background(), c.draining)
		defer cancel()
		if err = h.Shutdown(limit); err != nil { // it returns when the last request has its answer
			err = errors.Join(err, h.Close())
		}
	}
	return errors.Join(err, s.close())
}

func newServer(c config) (*server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.embedPath == "" && c.classifyPath == "" {
		return nil, errors.New("name a model with -embed or -classify")
	}
	s := &server{config: c, metrics: newMetrics()}
	if c.embedPath != "" {
		if err := s.add("embed", c.embedPath, embedder); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if c.classifyPath != "" {
		if err := s.add("classify", c.classifyPath, classifier); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// add loads a model and starts its batcher.
func (s *server) add(name, path string, run func(*sq.Context, []string) ([][]float32, error)) error {
	model, err := sq.Load(path, sq.LoadOptions{})
	if err != nil {
		return err
	}
	pool, err := sq.NewPool(model, s.config.contexts, sq.ContextOptions{Threads: s.config.threads})
	if err != nil {
		return errors.Join(err, model.Close())
	}
	runBatch := func(texts []string) (rows [][]float32, err error) {
		err = pool.Do(context.Background(), func(c *sq.Context) error {
			rows, err = run(c, texts)
			return err
		})
		return rows, err
	}
	if _, err := runBatch([]string{""}); err != nil { // the model lacks the head
		return errors.Join(err, pool.Close(), model.Close())
	}
	s.tasks = append(s.tasks, &task{name, model, pool, newBatcher(s.config.batch, s.config.contexts, runBatch, s.metrics.batch(name))})
	return nil
}

func embedder(c *sq.Context, texts []string) ([][]float32, error) {
	return c.Embed(texts, sq.EmbedOptions{})
}

func classifier(c *sq.Context, texts []string) ([][]float32, error) {
	classes, err := c.Classify(texts, sq.TextOptions{})
	rows := make([][]float32, len(classes))
	for i := range classes {
		rows[i] = classes[i].Scores
	}
	return rows, err
}
