package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"example.com/sq"
)

// task is a model and what runs it.
type task struct {
	name  string
	model *sq.Model
	pool  *sq.Pool
	batch *batcher
}

type server struct {
	config   config
	tasks    []*task
	metrics  *metrics
	draining atomic.Bool
}

// request is the body of POST /embed and /classify.
type request struct {
	Texts    []string `json:"texts"`
	Encoding string   `json:"encoding_format,omitempty"` // of vectors: "float", which "" is too, or "base64"
}

type embeddings struct {
	Embeddings [][]float32 `json:"embeddings"` // a row for each text
}

// packedEmbeddings has half the bytes of JSON's numbers, and no digits to write and to read.
type packedEmbeddings struct {
	Embeddings [][]byte `json:"embeddings"` // a row for each text: float32, little-endian, in base64
}

type classes struct {
	Labels []string    `json:"labels"` // the model's, in the order of scores
	Scores [][]float32 `json:"scores"` // a row for each text
}

type failure struct {
	Error string `json:"error"`
}

// errStatus is an error with the status that it has in HTTP.
type errStatus struct {
	code int
	text string
}

func (e *errStatus) Error() string { return e.text }

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, t := range s.tasks {
		mux.Handle("/"+t.name, s.endpoint(t))
	}
	mux.HandleFunc("/healthz", s.health)
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { s.metrics.write(w, s.tasks) })
	return mux
}

// close frees the models, after the last request has its answer.
func (s *server) close() error {
	var failed []error
	for _, t := range s.tasks {
		t.batch.close()
		failed = append(failed, t.pool.Close(), t.model.Close())
	}
	return errors.Join(failed...)
}

// health is 200 while requests are taken, 503 while the server drains.
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *server) endpoint(t *task) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		code := http.StatusOK
		body, err := s.answer(t, w, r)
		if err != nil {
			code, body = statusOf(err), failure{err.Error()}
		}
		s.metrics.request(t.name, code, time.Since(start))
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		text, _ := json.Marshal(body) // which holds strings and finite floats
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
		w.WriteHeader(code)
		w.Write(append(text, '\n')) // fails only when the client has left
	})
}

func (s *server) answer(t *task, w http.ResponseWriter, r *http.Request) (any, error) {
	q, err := s.read(t, w, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.config.requestTimeout)
	defer cancel()
	rows, err := t.batch.do(ctx, q.Texts)
	if err != nil {
		return nil, err
	}
	switch {
	case t.name == "classify":
		return classes{t.model.Labels(), rows}, nil
	case q.Encoding == "base64":
		return pack(rows), nil
	default:
		return embeddings{rows}, nil
	}
}

func pack(rows [][]float32) packedEmbeddings {
	packed := packedEmbeddings{make([][]byte, len(rows))}
	for i, row := range rows {
		packed.Embeddings[i] = make([]byte, 0, 4*len(row))
		for _, x := range row {
			packed.Embeddings[i] = binary.LittleEndian.AppendUint32(packed.Embeddings[i], math.Float32bits(x))
		}
	}
	return packed
}

// read gives a request that can be answered. A text that is too long is refused here, since it would fail the batch for all. A request that the queue has no room for is
// refused before it costs any work.
func (s *server) read(t *task, w http.ResponseWriter, r *http.Request) (*request, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &errStatus{http.StatusMethodNotAllowed, "use POST"}
	}
	if t.batch.full() {
		return nil, errFull
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.config.maxBodyBytes)) // to its end: then the server sees it when the client leaves
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &errStatus{http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", large.Limit)}
	}
	var q request
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		return nil, &errStatus{http.StatusBadRequest, "not a request: " + err.Error()}
	}
	if len(q.Texts) == 0 || len(q.Texts) > s.config.maxTexts {
		return nil, &errStatus{http.StatusBadRequest, fmt.Sprintf("a request has 1 to %d texts", s.config.maxTexts)}
	}
	if packs := q.Encoding == "base64" && t.name == "embed"; !packs && q.Encoding != "" && q.Encoding != "float" {
		return nil, &errStatus{http.StatusBadRequest, fmt.Sprintf("encoding_format %q: it is float, or for vectors base64", q.Encoding)}
	}
	for i, text := range q.Texts {
		if _, err := t.model.Tokenize(text, sq.TextOptions{}); err != nil {
			return nil, &errStatus{http.StatusBadRequest, fmt.Sprintf("text %d: %v", i, err)}
		}
	}
	return &q, nil
}

// statusClientLeft is for the metrics alone: nobody reads the answer. The number is nginx's.
const statusClientLeft = 499

func statusOf(err error) int {
	var known *errStatus
	switch {
	case errors.As(err, &known):
		return known.code
	case errors.Is(err, errFull):
		return http.StatusTooManyRequests
	case errors.Is(err, context.Canceled):
		return statusClientLeft
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errClosed):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
