package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sq"
)

func model(name string) string {
	folder := os.Getenv("SQ_TEST_DIR")
	if folder == "" {
		folder = "../../../../build/bindings"
	}
	return filepath.Join(folder, name)
}

func testConfig() config {
	return config{
		embedPath: model("embed.sq"), classifyPath: model("classify.sq"), contexts: 2, threads: 1,
		batch: batching{maxTexts: 8, queue: 1000}, maxBodyBytes: 10_000, maxTexts: 4, requestTimeout: 30 * time.Second, draining: 30 * time.Second,
	}
}

func start(t *testing.T, c config) (*server, *httptest.Server) {
	t.Helper()
	s, err := newServer(c)
	if err != nil {
		t.Fatalf("%v: `bash tests/test-bindings.sh --models-only` makes models", err)
	}
	h := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		h.Close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s, h
}

// post sends a body and decodes the answer into out, if out is not nil.
func post(t *testing.T, url, body string, out any) int {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	return response.StatusCode
}

func bodyOf(texts ...string) string {
	body, _ := json.Marshal(request{Texts: texts})
	return string(body)
}

// What the library gives without a server: JSON keeps every bit of a float32.
func direct(t *testing.T, path string, run func(*sq.Context, []string) ([][]float32, error), texts []string) [][]float32 {
	t.Helper()
	m, err := sq.Load(path, sq.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewContext(sq.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows, err := run(c, texts)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Many clients at once: each gets its own texts' answers, with the bits they have alone.
func TestAnswers(t *testing.T) {
	_, h := start(t, testConfig())
	texts := []string{"the dog sleeps", "a cat", "", "the old man had a red book", "caf\u00e9"}
	vectors := direct(t, model("embed.sq"), embedder, texts)
	scores := direct(t, model("classify.sq"), classifier, texts)
	var wait sync.WaitGroup
	for client := 0; client < 16; client++ {
		wait.Add(1)
		go func(client int) {
			defer wait.Done()
			for i := 0; i < 20; i++ {
				first := (client + i) % (len(texts) - 1)
				var e embeddings
				var c classes
				if code := post(t, h.URL+"/embed", bodyOf(texts[first:first+2]...), &e); code != 200 || !reflect.DeepEqual(e.Embeddings, vectors[first:first+2]) {
					t.Errorf("embed: %d, %v", code, e)
				}
				if code := post(t, h.URL+"/classify", bodyOf(texts[first:first+2]...), &c); code != 200 || !reflect.DeepEqual(c.Scores, scores[first:first+2]) || len(c.Labels) != 3 {
					t.Errorf("classify: %d, %v", code, c)
				}
			}
		}(client)
	}
	wait.Wait()
}

// Base64 holds the same vectors, bit by bit.
func TestPackedAnswers(t *testing.T) {
	_, h := start(t, testConfig())
	texts := []string{"the dog sleeps", "a cat"}
	var packed packedEmbeddings
	body, _ := json.Marshal(request{texts, "base64"})
	if code := post(t, h.URL+"/embed", string(body), &packed); code != 200 || len(packed.Embeddings) != len(texts) {
		t.Fatalf("embed: %d, %v", code, packed)
	}
	for i, want := range direct(t, model("embed.sq"), embedder, texts) {
		got := make([]float32, len(want))
		if err := binary.Read(bytes.NewReader(packed.Embeddings[i]), binary.LittleEndian, got); err != nil || !reflect.DeepEqual(got, want) || len(packed.Embeddings[i]) != 4*len(want) {
			t.Errorf("text %d: %v, %v, not %v", i, err, got, want)
		}
	}
	var plain embeddings
	body, _ = json.Marshal(request{texts, "float"})
	if code := post(t, h.URL+"/embed", string(body), &plain); code != 200 || len(plain.Embeddings) != len(texts) {
		t.Errorf("float: %d, %v", code, plain)
	}
	for _, bad := range []struct{ path, encoding string }{{"/embed", "int8"}, {"/classify", "base64"}} {
		body, _ = json.Marshal(request{texts, bad.encoding})
		var f failure
		if code := post(t, h.URL+bad.path, string(body), &f); code != 400 || !strings.Contains(f.Error, "encoding_format") {
			t.Errorf("%v: %d, %s", bad, code, f.Error)
		}
	}
}

func TestBadRequests(t *testing.T) {
	_, h := start(t, testConfig())
	for _, bad := range []struct {
		body, says string
		code       int
	}{
		{"{", "not a request", 400},
		{`{"texts": "a"}`, "not a request", 400},
		{`{"texts": ["a"]} {}`, "not a request", 400},
		{"", "not a request", 400},
		{`{}`, "1 to 4 texts", 400},
		{bodyOf("a", "b", "c", "d", "e"), "1 to 4 texts", 400},
		{bodyOf("a", strings.Repeat("dog ", 100)), "text 1: sq:", 400},
		{bodyOf(strings.Repeat("dog ", 10_000)), "10000 bytes", 413},
	} {
		var f failure
		if code := post(t, h.URL+"/embed", bad.body, &f); code != bad.code || !strings.Contains(f.Error, bad.says) {
			t.Errorf("%.40s: %d, %q", bad.body, code, f.Error)
		}
	}
	response, err := http.Get(h.URL + "/embed")
	if err != nil || response.StatusCode != 405 {
		t.Errorf("GET: %v, %v", response, err)
	}
	if code := post(t, h.URL+"/nothing", "", nil); code != 404 {
		t.Errorf("no such path: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	s, h := start(t, testConfig())
	post(t, h.URL+"/embed", bodyOf("a", "b"), nil)
	post(t, h.URL+"/embed", "{", nil)
	response, err := http.Get(h.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	for _, line := range []string{
		`sq_requests_total{task="embed",code="200"} 1`, `sq_requests_total{task="embed",code="400"} 1`, `sq_queue_requests{task="classify"} 0`,
		`sq_batch_texts_bucket{task="embed",le="1"} 0`, `sq_batch_texts_bucket{task="embed",le="2"} 1`, `sq_batch_texts_sum{task="embed"} 2`,
		`sq_request_seconds_count{task="embed"} 1`, `sq_request_seconds_bucket{task="embed",le="+Inf"} 1`,
	} {
		if !bytes.Contains(text, []byte(line+"\n")) {
			t.Errorf("%s is missing in\n%s", line, text)
		}
	}
	s.draining.Store(true)
	if response, err = http.Get(h.URL + "/healthz"); err != nil || response.StatusCode != 503 {
		t.Errorf("health while draining: %v, %v", response, err)
	}
}

// More clients than the server takes: 200 and 429, nothing else.
func TestOverload(t *testing.T) {
	c := testConfig()
	c.batch = batching{maxTexts: 2, queue: 2}
	c.contexts = 1
	_, h := start(t, c)
	body := bodyOf(strings.Repeat("dog ", 60), strings.Repeat("cat ", 60))
	var mu sync.Mutex
	codes := map[int]int{}
	var wait sync.WaitGroup
	for client := 0; client < 32; client++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 20; i++ {
				code := post(t, h.URL+"/embed", body, nil)
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		}()
	}
	wait.Wait()
	if codes[200] == 0 || codes[429] == 0 || codes[200]+codes[429] != 32*20 {
		t.Errorf("answers %v", codes)
	}
}

// ---- the batcher alone, with a function that blocks ----

// held runs batches one by one, each when release lets it.
type held struct {
	begun   chan []string
	release chan error
}

func (h held) run(texts []string) ([][]float32, error) {
	h.begun <- texts
	err := <-h.release
	rows := make([][]float32, len(texts))
	for i, text := range texts {
		rows[i] = []float32{float32(len(text))}
	}
	return rows, err
}

func newHeld(limits batching, workers int) (held, *batcher) {
	h := held{make(chan []string), make(chan error)}
	return h, newBatcher(limits, workers, h.run, newHistogram(1))
}

// ask sends a request and gives the channel of its answer.
func ask(b *batcher, ctx context.Context, texts ...string) chan answer {
	done := make(chan answer, 1)
	go func() {
		rows, err := b.do(ctx, texts)
		done <- answer{rows, err}
	}()
	return done
}

func until(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}

func TestBatches(t *testing.T) {
	ctx := context.Background()
	h, b := newHeld(batching{maxTexts: 3, queue: 4}, 1)
	first := ask(b, ctx, "a")
	<-h.begun
	var more []chan answer
	for i := 1; i <= 4; i++ {
		more = append(more, ask(b, ctx, strings.Repeat("b", i)))
		until(func() bool { return b.waiting() == i })
	}
	if _, err := b.do(ctx, []string{"c"}); !errors.Is(err, errFull) {
		t.Errorf("a full queue: %v", err)
	}
	h.release <- nil
	if texts := <-h.begun; !reflect.DeepEqual(texts, []string{"b", "bb", "bbb"}) {
		t.Errorf("a batch of %v", texts)
	}
	h.release <- errors.New("broken")
	<-h.begun
	h.release <- nil
	if a := <-first; a.err != nil || a.rows[0][0] != 1 {
		t.Errorf("%v", a)
	}
	for i, done := range more {
		if a := <-done; (a.err != nil) != (i < 3) {
			t.Errorf("request %d: %v", i, a)
		}
	}
	b.close()
}

// Two workers share what waits.
func TestBatchesAreShared(t *testing.T) {
	ctx := context.Background()
	h, b := newHeld(batching{maxTexts: 8, queue: 4}, 2)
	for i := 0; i < 2; i++ {
		ask(b, ctx, "busy")
		<-h.begun
	}
	for i := 1; i <= 4; i++ {
		ask(b, ctx, "waits")
		until(func() bool { return b.waiting() == i })
	}
	for _, share := range []int{2, 1, 1} { // half of 4, of 2, and what is left
		h.release <- nil
		if texts := <-h.begun; len(texts) != share {
			t.Errorf("a batch of %v", texts)
		}
	}
	h.release <- nil
	h.release <- nil
	b.close()
}

// The batcher may end before the last of those who ask has noticed.
func TestBatcherCloses(t *testing.T) {
	h, b := newHeld(batching{maxTexts: 1, queue: 4}, 1)
	first := ask(b, context.Background(), "a")
	<-h.begun
	second := ask(b, context.Background(), "b")
	until(func() bool { return b.waiting() == 1 })
	ended := make(chan bool)
	go func() { b.close(); close(ended) }()
	until(func() bool {
		b.mu.RLock()
		defer b.mu.RUnlock()
		return b.closed
	})
	if _, err := b.do(context.Background(), []string{"late"}); !errors.Is(err, errClosed) {
		t.Errorf("a request after the end: %v", err)
	}
	h.release <- nil
	<-h.begun
	h.release <- nil
	if x, y := <-first, <-second; x.err != nil || y.err != nil {
		t.Errorf("%v, %v", x, y)
	}
	<-ended
}

func TestBatchWaits(t *testing.T) {
	h, b := newHeld(batching{maxTexts: 2, maxWait: time.Minute, queue: 4}, 1)
	first := ask(b, context.Background(), "a")
	until(func() bool { return b.waiting() == 0 })
	second := ask(b, context.Background(), "bb")
	if texts := <-h.begun; len(texts) != 2 {
		t.Errorf("a batch of %v", texts)
	}
	h.release <- nil
	if x, y := <-first, <-second; x.rows[0][0]+y.rows[0][0] != 3 {
		t.Errorf("%v, %v", x, y)
	}
	b.close()
}

func TestClientsThatLeave(t *testing.T) {
	h, b := newHeld(batching{maxTexts: 4, queue: 4}, 1)
	first := ask(b, context.Background(), "a")
	<-h.begun
	ctx, leave := context.WithCancel(context.Background())
	left, stayed := ask(b, ctx, "b"), ask(b, context.Background(), "c")
	until(func() bool { return b.waiting() == 2 })
	leave()
	if a := <-left; !errors.Is(a.err, context.Canceled) {
		t.Errorf("%v", a)
	}
	h.release <- nil
	if texts := <-h.begun; !reflect.DeepEqual(texts, []string{"c"}) {
		t.Errorf("a batch of %v", texts)
	}
	h.release <- nil
	<-first
	<-stayed
	b.close()
}

// ---- the end ----

// A request that the server has when it is told to end gets its answer, and serve returns without an error.
func TestDraining(t *testing.T) {
	c := testConfig()
	c.address = freeAddress(t)
	c.batch.maxWait = 300 * time.Millisecond // the request waits so long for others
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve(ctx, c) }()
	url := "http://" + c.address
	until(func() bool { _, err := http.Get(url + "/healthz"); return err == nil })
	code := make(chan int)
	go func() { code <- post(t, url+"/embed", bodyOf("a"), nil) }()
	time.Sleep(100 * time.Millisecond)
	stop()
	if got := <-code; got != 200 {
		t.Errorf("the last request: %d", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(url + "/healthz"); err == nil {
		t.Error("it still listens")
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A client that does not finish its request cannot hold up the end for longer than -drain.
func TestDrainingEnds(t *testing.T) {
	c := testConfig()
	c.address = freeAddress(t)
	c.draining = 100 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve(ctx, c) }()
	until(func() bool { _, err := http.Get("http://" + c.address + "/healthz"); return err == nil })
	slow, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
	time.Sleep(50 * time.Millisecond)
	stop()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

func TestNoModels(t *testing.T) {
	if err := serve(context.Background(), config{}); err == nil {
		t.Error("without models")
	}
	c := testConfig()
	c.contexts = 0
	if err := serve(context.Background(), c); err == nil {
		t.Error("without contexts")
	}
	c = testConfig()
	c.classifyPath = "no/such/file.sq"
	if err := serve(context.Background(), c); !errors.Is(err, sq.IO) {
		t.Errorf("no file: %v", err)
	}
	c.classifyPath = c.embedPath // which has no head: refused at once, not at the first request
	if err := serve(context.Background(), c); !errors.Is(err, sq.Task) {
		t.Error(fmt.Sprint("no head: ", err))
	}
}
