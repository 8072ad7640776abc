package sq

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// testFolder has models and what C makes of texts.txt with them; tests/bindings/reference.c describes its files.
func testFolder() string {
	if folder := os.Getenv("SQ_TEST_DIR"); folder != "" {
		return folder
	}
	return "../../build/bindings"
}

// lines reads a file of the test folder.
func lines(t testing.TB, name string) []string {
	t.Helper()
	bytes, err := os.ReadFile(filepath.Join(testFolder(), name))
	if err != nil {
		t.Fatalf("%v: `bash tests/test-bindings.sh --models-only` makes it", err)
	}
	return strings.Split(strings.TrimSuffix(string(bytes), "\n"), "\n")
}

func texts(t testing.TB) []string { return lines(t, "texts.txt") }

// float gives the value of eight hexadecimal digits.
func float(t testing.TB, hex string) float32 {
	t.Helper()
	bits, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return math.Float32frombits(uint32(bits))
}

// matrix reads a file of rows of floats.
func matrix(t testing.TB, name string) [][]float32 {
	t.Helper()
	var rows [][]float32
	for _, line := range lines(t, name) {
		var row []float32
		for _, hex := range strings.Fields(line) {
			row = append(row, float(t, hex))
		}
		rows = append(rows, row)
	}
	return rows
}

func sameBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

func expectRows(t testing.TB, got, expected [][]float32) {
	t.Helper()
	if len(got) != len(expected) {
		t.Fatalf("%d rows, expected %d", len(got), len(expected))
	}
	for i := range got {
		if !sameBits(got[i], expected[i]) {
			t.Errorf("row %d: %v, expected %v", i, got[i], expected[i])
		}
	}
}

// load opens a model of the test folder; it is closed when the test ends.
func load(t testing.TB, name string) *Model {
	t.Helper()
	m, err := Load(filepath.Join(testFolder(), name), LoadOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func newContext(t testing.TB, m *Model, o ContextOptions) *Context {
	t.Helper()
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
