// Command sq-load asks a running sq-serve for a while from a fixed number of clients, each of which sends its next request when it has the answer to the
// last one, and reports requests a second and how long they took. More clients than the server's queue has room for get 429.
//
//	go run ./cmd/sq-load -clients 8 -seconds 10 -words 30
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

type load struct {
	url     string
	clients int
	seconds float64
	body    []byte
}

// result is what clients saw.
type result struct {
	took   []time.Duration // of requests answered with 200
	codes  map[int]int
	failed int // requests without any answer
}

func main() {
	var l load
	var words, texts int
	var encoding string
	flag.StringVar(&l.url, "url", "http://127.0.0.1:8080/embed", "where to send requests")
	flag.IntVar(&l.clients, "clients", 8, "requests under way at once")
	flag.Float64Var(&l.seconds, "seconds", 10, "how long")
	flag.IntVar(&words, "words", 14, "words of a text, a token each; the model adds two")
	flag.IntVar(&texts, "texts", 1, "texts of a request")
	flag.StringVar(&encoding, "encoding", "float", "encoding_format of the answers: float, or base64 (/embed only)")
	flag.Parse()
	l.body = requestBody(texts, words, encoding)
	if !report(os.Stdout, l, run(l)) {
		os.Exit(1)
	}
}

func requestBody(texts, words int, encoding string) []byte {
	vocabulary := []string{"the", "dog", "and", "the", "cat", "sleep", "in", "the", "old", "house"}
	var text []string
	for i := 0; i < words; i++ {
		text = append(text, vocabulary[i%len(vocabulary)])
	}
	list := make([]string, texts)
	for i := range list {
		list[i] = strings.Join(text, " ")
	}
	body, _ := json.Marshal(map[string]any{"texts": list, "encoding_format": encoding})
	return body
}

// run sends requests until the time is over.
func run(l load) result {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.clients, MaxIdleConns: l.clients}, Timeout: time.Minute}
	results := make([]result, l.clients)
	end := time.Now().Add(time.Duration(l.seconds * float64(time.Second)))
	var wait sync.WaitGroup
	for i := range results {
		wait.Add(1)
		go func(r *result) {
			defer wait.Done()
			r.codes = map[int]int{}
			for time.Now().Before(end) {
				r.ask(client, l)
			}
		}(&results[i])
	}
	wait.Wait()
	return sum(results)
}

func (r *result) ask(client *http.Client, l load) {
	start := time.Now()
	response, err := client.Post(l.url, "application/json", bytes.NewReader(l.body))
	if err != nil {
		r.failed++
		return
	}
	_, err = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if err != nil {
		r.failed++
		return
	}
	r.codes[response.StatusCode]++
	if response.StatusCode == http.StatusOK {
		r.took = append(r.took, time.Since(start))
	}
}

func sum(results []result) result {
	all := result{codes: map[int]int{}}
	for _, r := range results {
		all.took = append(all.took, r.took...)
		all.failed += r.failed
		for code, n := range r.codes {
			all.codes[code] += n
		}
	}
	sort.Slice(all.took, func(i, j int) bool { return all.took[i] < all.took[j] })
	return all
}

// report is false if anything but 200 and 429 came back.
func report(w io.Writer, l load, r result) bool {
	fmt.Fprintf(w, "%d clients, %.0f s: answers %v, without answer %d\n", l.clients, l.seconds, r.codes, r.failed)
	if len(r.took) > 0 {
		at := func(q float64) float64 { return 1e3 * r.took[int(q*float64(len(r.took)-1))].Seconds() }
		fmt.Fprintf(w, "%.1f requests/s, median %.2f ms, p90 %.2f ms, p99 %.2f ms\n", float64(len(r.took))/l.seconds, at(.5), at(.9), at(.99))
	}
	for code := range r.codes {
		if code != http.StatusOK && code != http.StatusTooManyRequests {
			return false
		}
	}
	return r.failed == 0
}
