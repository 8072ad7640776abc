package sq

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkOverhead measures what a call from Go takes longer than from C, for a text of 16 tokens on one thread. Both run in alternation, a block of calls
// each, C in a process of its own (tests/bindings/call.c). What Go adds is the median, and the quartiles, of the rounds' differences of the blocks' medians; and
// the difference of the fastest calls of all, which other work on the machine disturbs least. SQ_BENCH_MODEL names one more model.
//
//	go test -run - -bench Overhead -benchtime 100x
func BenchmarkOverhead(b *testing.B) {
	b.Run("tiny", func(b *testing.B) { measureOverhead(b, filepath.Join(testFolder(), "embed.sq"), 1000) })
	if path := os.Getenv("SQ_BENCH_MODEL"); path != "" {
		b.Run(filepath.Base(path), func(b *testing.B) { measureOverhead(b, path, 50) })
	}
}

const sixteenTokens = "the dog and the cat sleep in the old house by the a a" // for the tiny tests' and for English vocabularies

func measureOverhead(b *testing.B, path string, callsInBlock int) {
	m, err := Load(path, LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if tokens, err := m.Tokenize(sixteenTokens, TextOptions{}); err != nil || len(tokens) != 16 {
		b.Fatalf("%d tokens, %v", len(tokens), err)
	}
	c := newContext(b, m, ContextOptions{Threads: 1, NoTuning: true})
	inC := startC(b, path)
	inC.block(callsInBlock)
	block(b, c, callsInBlock)
	var cNs, difference []float64
	fastestC, fastestGo := math.Inf(1), math.Inf(1)
	for i := 0; i < b.N; i++ {
		x, y := inC.block(callsInBlock), block(b, c, callsInBlock)
		cNs, difference = append(cNs, x.median), append(difference, y.median-x.median)
		fastestC, fastestGo = min(fastestC, x.fastest), min(fastestGo, y.fastest)
	}
	b.ReportMetric(0, "ns/op") // counts blocks
	b.ReportMetric(quantile(cNs, .5)/1e3, "C-us")
	b.ReportMetric(quantile(difference, .5)/1e3, "more-us")
	b.ReportMetric(quantile(difference, .25)/1e3, "more-us-low")
	b.ReportMetric(quantile(difference, .75)/1e3, "more-us-high")
	b.ReportMetric((fastestGo-fastestC)/1e3, "more-us-fastest")
	b.ReportMetric(100*quantile(difference, .5)/quantile(cNs, .5), "more-%")
}

// times of a block's calls, nanoseconds.
type times struct{ median, fastest float64 }

func block(b *testing.B, c *Context, n int) times {
	texts := []string{sixteenTokens}
	ns := make([]float64, n)
	for i := range ns {
		start := time.Now()
		_, err := c.Embed(texts, EmbedOptions{})
		ns[i] = float64(time.Since(start).Nanoseconds())
		if err != nil {
			b.Fatal(err)
		}
	}
	return times{quantile(ns, .5), ns[0]}
}

// quantile sorts x.
func quantile(x []float64, q float64) float64 {
	slices.Sort(x)
	return x[int(q*float64(len(x)-1))]
}

// callsInC is tests/bindings/call.c at work.
type callsInC struct {
	b   *testing.B
	in  io.Writer
	out *bufio.Scanner
}

func startC(b *testing.B, model string) callsInC {
	command := exec.Command(filepath.Join(testFolder(), "call"), model, sixteenTokens)
	command.Stderr = os.Stderr
	in, _ := command.StdinPipe()
	out, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); command.Wait() })
	return callsInC{b, in, bufio.NewScanner(out)}
}

func (c callsInC) block(n int) (t times) {
	fmt.Fprintln(c.in, n)
	if c.out.Scan() {
		fmt.Sscan(c.out.Text(), &t.median, &t.fastest)
	}
	if t.fastest == 0 {
		c.b.Fatal("call does not answer")
	}
	return t
}
