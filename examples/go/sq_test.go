package sq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// ---- the same as C ----

func TestTokenize(t *testing.T) {
	m := load(t, "embed.sq")
	for i, expected := range lines(t, "tokens.txt") {
		tokens, err := m.Tokenize(texts(t)[i], TextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, token := range tokens {
			got = append(got, fmt.Sprintf("%d,%d,%d,%d", token.ID, token.Type, token.Start, token.End))
		}
		if strings.Join(got, " ") != expected {
			t.Errorf("text %d: %v, expected %v", i, got, expected)
		}
	}
}

// Token ids beside those of Hugging Face.
func TestTokenizeGolden(t *testing.T) {
	file, err := os.ReadFile("../../tests/golden/bert-64/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, "embed.sq")
	for _, line := range strings.Split(strings.TrimSpace(string(file)), "\n")[1:] { // the first line says where the values come from
		var row struct {
			A   string
			B   *string
			IDs []int32
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		var tokens []Token
		if row.B == nil {
			tokens, err = m.Tokenize(row.A, TextOptions{MaxLen: NoLimit})
		} else {
			tokens, err = m.TokenizePair(row.A, *row.B, TextOptions{MaxLen: NoLimit})
		}
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, token := range tokens {
			ids = append(ids, token.ID)
		}
		if !reflect.DeepEqual(ids, row.IDs) {
			t.Errorf("%q: %v, expected %v", row.A, ids, row.IDs)
		}
	}
}

func TestEmbed(t *testing.T) {
	c := newContext(t, load(t, "embed.sq"), ContextOptions{})
	got, err := c.Embed(texts(t), EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expectRows(t, got, matrix(t, "embed.txt"))
	none, err := c.Embed(nil, EmbedOptions{})
	if err != nil || len(none) != 0 {
		t.Errorf("no texts give %v, %v", none, err)
	}
}

func TestEmbedOptions(t *testing.T) {
	c := newContext(t, load(t, "embed.sq"), ContextOptions{Threads: 1, MaxTokens: 64, MaxTexts: 2, NoTuning: true})
	got, err := c.Embed(texts(t), EmbedOptions{Dimensions: 8, Normalize: NormalizeNo, Pooling: PoolMean})
	if err != nil {
		t.Fatal(err)
	}
	var expected [][]float32
	for _, row := range matrix(t, "embed.txt") {
		expected = append(expected, row[:8])
	}
	expectRows(t, got, expected)
	unit, err := c.Embed([]string{"a cat"}, EmbedOptions{Normalize: NormalizeYes})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range unit[0] {
		sum += float64(x) * float64(x)
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("length %v", math.Sqrt(sum))
	}
	if _, err := c.Embed([]string{"a"}, EmbedOptions{Dimensions: 65}); !errors.Is(err, Arg) {
		t.Errorf("65 dimensions of 64: %v", err)
	}
}

func TestClassify(t *testing.T) {
	m := load(t, "classify.sq")
	if !reflect.DeepEqual(m.Labels(), []string{"entailment", "neutral", "contradiction"}) {
		t.Errorf("labels %v", m.Labels())
	}
	c := newContext(t, m, ContextOptions{})
	all := texts(t)
	classes, err := c.Classify(all, TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var pairs []Pair
	var scores, logits [][]float32
	for i, class := range classes {
		scores, logits = append(scores, class.Scores), append(logits, class.Logits)
		pairs = append(pairs, Pair{all[i], all[(i+1)%len(all)]})
		if best := class.Scores[class.Best()]; best < class.Scores[0] || best < class.Scores[1] || best < class.Scores[2] {
			t.Errorf("%v is not the best of %v", best, class.Scores)
		}
	}
	expectRows(t, scores, matrix(t, "scores.txt"))
	expectRows(t, logits, matrix(t, "logits.txt"))

	classes, err = c.ClassifyPairs(pairs, TextOptions{Truncate: true})
	if err != nil {
		t.Fatal(err)
	}
	logits = nil
	for _, class := range classes {
		logits = append(logits, class.Logits)
	}
	expectRows(t, logits, matrix(t, "pairs.txt"))
}

func TestRerank(t *testing.T) {
	c := newContext(t, load(t, "score.sq"), ContextOptions{})
	ranked, err := c.Rerank(texts(t)[0], texts(t), TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range ranked {
		got = append(got, fmt.Sprintf("%d %08x", r.Document, math.Float32bits(r.Score)))
	}
	if !reflect.DeepEqual(got, lines(t, "rerank.txt")) {
		t.Errorf("%v", got)
	}
}

func TestAnswer(t *testing.T) {
	c := newContext(t, load(t, "answer.sq"), ContextOptions{})
	answers, err := c.Answer(texts(t)[0], strings.Join(texts(t), " "), AnswerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range answers {
		got = append(got, fmt.Sprintf("%d %d %08x %08x", a.Start, a.End, math.Float32bits(a.Score), math.Float32bits(a.Probability)))
	}
	if !reflect.DeepEqual(got, lines(t, "answer.txt")) {
		t.Errorf("%v", got)
	}
	if none, err := c.Answer("who", "", AnswerOptions{}); err != nil || len(none) != 0 {
		t.Errorf("an empty context: %v, %v", none, err)
	}
	null, err := c.Answer("who", "a cat", AnswerOptions{AllowNull: true})
	if err != nil || !hasNull(null) {
		t.Errorf("no answer is not among %v, %v", null, err)
	}
}

func hasNull(answers []Answer) bool {
	for _, a := range answers {
		if a.Start == 0 && a.End == 0 {
			return true
		}
	}
	return false
}

func TestTag(t *testing.T) {
	c := newContext(t, load(t, "tag.sq"), ContextOptions{})
	for _, kind := range []struct {
		file  string
		words bool
	}{{"tag.txt", false}, {"words.txt", true}} {
		entities, err := c.Tag(texts(t), TagOptions{Words: kind.words})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entities {
			got = append(got, fmt.Sprintf("%d %d %d %d %08x %s", e.Text, e.Start, e.End, e.Words, math.Float32bits(e.Score), e.Label))
		}
		if !reflect.DeepEqual(got, lines(t, kind.file)) {
			t.Errorf("%s: %v", kind.file, got)
		}
	}
	if words, err := c.Tag([]string{strings.Repeat("a ", 60)}, TagOptions{Words: true}); err != nil || len(words) != 60 {
		t.Errorf("more words than the first buffer holds: %d, %v", len(words), err)
	}
}

// ---- texts ----

func TestOddTexts(t *testing.T) {
	c := newContext(t, load(t, "embed.sq"), ContextOptions{})
	for _, pair := range [][2]string{
		{"a\xffcat", "a\ufffdcat"},
		{"\xf0\x9f\x90 dog", "\ufffd dog"}, // cut short: one maximal subpart
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
	} {
		got, err := c.Embed(pair[:], EmbedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !sameBits(got[0], got[1]) {
			t.Errorf("%q is not %q", pair[0], pair[1])
		}
	}
	if _, err := c.Embed([]string{"a\x00cat"}, EmbedOptions{}); err != nil {
		t.Errorf("NUL is data: %v", err)
	}
}

func TestLongTexts(t *testing.T) {
	m := load(t, "embed.sq")
	c := newContext(t, m, ContextOptions{})
	long := strings.Repeat("dog ", 5000)
	_, err := c.Embed([]string{"a", long}, EmbedOptions{})
	var failed *Error
	if !errors.As(err, &failed) || failed.Status != Limit || !strings.Contains(failed.Text, "5002 tokens") {
		t.Errorf("too long: %v", err)
	}
	if _, err := m.Tokenize(long, TextOptions{}); !errors.Is(err, Limit) || !strings.Contains(err.Error(), "5002") {
		t.Errorf("too long to tokenize: %v", err)
	}
	cut, err := c.Embed([]string{long, strings.Repeat("dog ", 62)}, EmbedOptions{TextOptions: TextOptions{Truncate: true}})
	if err != nil || !sameBits(cut[0], cut[1]) {
		t.Errorf("cut: %v", err)
	}
	tokens, err := m.Tokenize(long, TextOptions{MaxLen: NoLimit})
	if err != nil || len(tokens) != 5002 {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
}

// ---- errors ----

func TestErrors(t *testing.T) {
	_, err := Load("no/such/file.sq", LoadOptions{})
	if !errors.Is(err, IO) || !strings.Contains(err.Error(), "no/such/file.sq") {
		t.Errorf("no file: %v", err)
	}
	if _, err = Load(filepath.Join(testFolder(), "texts.txt"), LoadOptions{}); !errors.Is(err, Format) {
		t.Errorf("no model: %v", err)
	}
	if _, err = Load(filepath.Join(testFolder(), "embed.sq"), LoadOptions{ISA: "abacus"}); !errors.Is(err, CPU) {
		t.Errorf("no instruction set: %v", err)
	}
	m := load(t, "embed.sq")
	c := newContext(t, m, ContextOptions{})
	if _, err = c.Classify([]string{"a"}, TextOptions{}); !errors.Is(err, Task) || !strings.Contains(err.Error(), "no head") {
		t.Errorf("no head: %v", err)
	}
	if _, err = m.NewContext(ContextOptions{Threads: -1}); err == nil {
		t.Error("-1 threads")
	}
	if _, err = m.Meta("no such key"); !errors.Is(err, Arg) {
		t.Errorf("no key: %v", err)
	}
	if _, err = Load(filepath.Join(testFolder(), "embed.sq")+"\x00", LoadOptions{}); !errors.Is(err, Arg) {
		t.Errorf("a path with a NUL: %v", err)
	}
	if _, err = Load("", LoadOptions{}); !errors.Is(err, IO) {
		t.Errorf("no path: %v", err)
	}
	for _, o := range []ContextOptions{{Threads: 1<<32 + 1}, {MaxTokens: -1}, {MaxTexts: 1 << 40}, {Tuning: "\x00"}} {
		if _, err = m.NewContext(o); err == nil {
			t.Errorf("a context of %+v", o)
		}
	}
	for _, n := range []int{-1, 1<<32 + 8} {
		if _, err = c.Embed([]string{"a"}, EmbedOptions{Dimensions: n}); !errors.Is(err, Arg) {
			t.Errorf("%d dimensions: %v", n, err)
		}
	}
	if info := m.Info(); info.Width != 64 || info.Layers != 3 || info.Head != HeadNone || info.ISA == "" {
		t.Errorf("%+v", info)
	}
}

// ---- threads and closing ----

func TestPool(t *testing.T) {
	p, err := NewPool(load(t, "embed.sq"), 2, ContextOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	all, expected := texts(t), matrix(t, "embed.txt")
	var wait sync.WaitGroup
	for g := 0; g < 16; g++ {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			for i := 0; i < 50; i++ {
				first := (g + i) % len(all)
				err := p.Do(context.Background(), func(c *Context) error {
					got, err := c.Embed(all[first:], EmbedOptions{})
					for j := range got {
						if !sameBits(got[j], expected[first+j]) {
							t.Errorf("text %d differs", first+j)
						}
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}(g)
	}
	wait.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if err := p.Do(context.Background(), func(*Context) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("used after Close: %v", err)
	}
}

func TestPoolPanic(t *testing.T) {
	p, err := NewPool(load(t, "embed.sq"), 1, ContextOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		p.Do(context.Background(), func(*Context) error { panic("of the caller") })
	}()
	if err := p.Close(); err != nil { // the context is back
		t.Error(err)
	}
}

func TestPoolWaits(t *testing.T) {
	p, err := NewPool(load(t, "embed.sq"), 1, ContextOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Do(context.Background(), func(*Context) error {
		if err := p.Close(); !errors.Is(err, Busy) {
			t.Errorf("closed while a context is lent: %v", err)
		}
		brief, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		return p.Do(brief, func(*Context) error { return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a context: %v", err)
	}
	late, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Do(late, func(*Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("begun too late: %v", err)
	}
	brief, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	err = p.Do(brief, func(c *Context) error {
		_, err := c.Embed(make([]string, 200_000), EmbedOptions{})
		return err
	})
	if !errors.Is(err, Cancel) {
		t.Errorf("a call after its deadline: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// So many texts take seconds, so that everything else happens while they run.
func TestCloseWhileRunning(t *testing.T) {
	c := newContext(t, load(t, "embed.sq"), ContextOptions{})
	done := make(chan error)
	go func() {
		err := errBusy("")
		for errors.Is(err, Busy) { // by the short calls below
			_, err = c.Embed(make([]string, 200_000), EmbedOptions{})
		}
		done <- err
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		_, err := c.Embed([]string{"a"}, EmbedOptions{})
		begun = errors.Is(err, Busy)
	}
	if err := c.Close(); !errors.Is(err, Busy) {
		t.Errorf("closed while a call runs: %v", err)
	}
	if _, err := c.Embed([]string{"a"}, EmbedOptions{}); !errors.Is(err, Busy) {
		t.Errorf("a second call: %v", err)
	}
	var err error
	for running := true; running; {
		c.Cancel() // before the library has begun it has no effect
		select {
		case err = <-done:
			running = false
		case <-time.After(time.Millisecond):
		}
	}
	if !errors.Is(err, Cancel) {
		t.Errorf("cancelled: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c.Cancel()
	if _, err := c.Embed([]string{"a"}, EmbedOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("used after Close: %v", err)
	}
	if err := c.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestCloseModel(t *testing.T) {
	m := load(t, "embed.sq")
	c := newContext(t, m, ContextOptions{})
	m.mu.RLock() // as every call does
	if err := m.Close(); !errors.Is(err, Busy) {
		t.Errorf("closed while a call runs: %v", err)
	}
	m.mu.RUnlock()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Tokenize("a", TextOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("used after Close: %v", err)
	}
	if _, err := m.NewContext(ContextOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a context after Close: %v", err)
	}
	got, err := c.Embed(texts(t)[:1], EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expectRows(t, got, matrix(t, "embed.txt")[:1])
}

// Calls from many goroutines on one context: each either has the right bits or is refused.
func TestOneContextManyGoroutines(t *testing.T) {
	c := newContext(t, load(t, "embed.sq"), ContextOptions{Threads: 1})
	all, expected := texts(t), matrix(t, "embed.txt")
	var wait sync.WaitGroup
	for g := 0; g < 8; g++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 200; i++ {
				got, err := c.Embed(all[i%len(all):i%len(all)+1], EmbedOptions{})
				if err == nil && !sameBits(got[0], expected[i%len(all)]) {
					t.Error("other bits")
				}
				if err != nil && !errors.Is(err, Busy) {
					t.Error(err)
				}
			}
		}()
	}
	wait.Wait()
}
