package sq

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkOverhead measures what a call from Go takes longer than from C, for a text of 16 tokens on one thread. Both run in alternation, a block of calls
// each, C in a process of its own (tests/bindings/call.c); medians of the blocks' medians. SQ_BENCH_MODEL names one more model.
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
	var goNs, cNs, difference []float64
	for i := 0; i < b.N; i++ {
		x, y := inC.block(callsInBlock), block(b, c, callsInBlock)
		cNs, goNs, difference = append(cNs, x), append(goNs, y), append(difference, y-x)
	}
	b.ReportMetric(0, "ns/op") // counts blocks
	b.ReportMetric(median(cNs)/1e3, "C-us")
	b.ReportMetric(median(goNs)/1e3, "Go-us")
	b.ReportMetric(median(difference)/1e3, "overhead-us")
	b.ReportMetric(100*median(difference)/median(cNs), "overhead-%")
}

// block gives the median nanoseconds of n calls.
func block(b *testing.B, c *Context, n int) float64 {
	texts := []string{sixteenTokens}
	times := make([]float64, n)
	for i := range times {
		start := time.Now()
		_, err := c.Embed(texts, EmbedOptions{})
		times[i] = float64(time.Since(start).Nanoseconds())
		if err != nil {
			b.Fatal(err)
		}
	}
	return median(times)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
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

func (c callsInC) block(n int) float64 {
	fmt.Fprintln(c.in, n)
	var ns float64
	if c.out.Scan() {
		fmt.Sscan(c.out.Text(), &ns)
	}
	if ns == 0 {
		c.b.Fatal("call does not answer")
	}
	return ns
}
