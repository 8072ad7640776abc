// Command hello says how alike two texts are: sq from Go in one page.
//
//	go run ./cmd/hello MODEL.sq "A man is eating." "Someone has lunch."
package main

import (
	"fmt"
	"math"
	"os"

	"example.com/sq"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: hello MODEL.sq TEXT TEXT")
		os.Exit(2)
	}
	if err := hello(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func hello(path string, texts []string) error {
	model, err := sq.Load(path, sq.LoadOptions{})
	if err != nil {
		return err
	}
	defer model.Close()
	c, err := model.NewContext(sq.ContextOptions{})
	if err != nil {
		return err
	}
	defer c.Close()
	vectors, err := c.Embed(texts, sq.EmbedOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("cosine similarity %.4f\n", cosine(vectors[0], vectors[1]))
	return nil
}

func cosine(x, y []float32) float64 {
	var xy, xx, yy float64
	for i := range x {
		xy += float64(x[i]) * float64(y[i])
		xx += float64(x[i]) * float64(x[i])
		yy += float64(y[i]) * float64(y[i])
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}
