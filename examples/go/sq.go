// Package sq runs BERT, DistilBERT and XLM-RoBERTa in INT8 on CPUs, through the C library of that name.
//
// A [Model] is a mapped file that any number of goroutines may use. A [Context] computes, for one goroutine at a time. A [Pool] lends contexts to as many
// goroutines as there are:
//
//	model, err := sq.Load("minilm.sq", sq.LoadOptions{})
//	pool, err := sq.NewPool(model, 4, sq.ContextOptions{Threads: 1})
//	err = pool.Do(ctx, func(c *sq.Context) error {
//		vectors, err = c.Embed(texts, sq.EmbedOptions{})
//		return err
//	})
//
// Models, contexts and pools hold memory that the garbage collector does not see: Close them. Closing one while a call runs on it is an error ([Busy]) that
// changes nothing; using one after Close is [ErrClosed].
//
// Texts are Go strings, which may hold any bytes: each invalid sequence of UTF-8 counts as one U+FFFD. Offsets into texts count bytes, as in Go slices.
// The zero value of each options struct means all defaults. Results have the same bits as the C program's, in any context, beside any other texts.
package sq

// #include <stdlib.h>
// #include <sq.h>
import "C"

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// Status is one of the C library's codes. It is an error, for errors.Is: errors.Is(err, sq.Limit).
type Status int32

const (
	Arg      Status = C.SQ_E_ARG      // an argument is out of range or inconsistent
	IO       Status = C.SQ_E_IO       // the operating system refused: open, map, read
	Format   Status = C.SQ_E_FORMAT   // the model file is damaged or is no model file
	Version  Status = C.SQ_E_VERSION  // the file is newer than the library
	CPU      Status = C.SQ_E_CPU      // this machine lacks the instruction set asked for
	Mem      Status = C.SQ_E_MEM      // out of memory, or a worker thread could not be started
	Space    Status = C.SQ_E_SPACE    // a buffer was too small; this package makes room by itself
	Limit    Status = C.SQ_E_LIMIT    // the input is longer than the model or the context allows
	Task     Status = C.SQ_E_TASK     // the model has no head for this task
	Internal Status = C.SQ_E_INTERNAL // a fault of the library
	Busy     Status = C.SQ_E_BUSY     // another call is running
	Numeric  Status = C.SQ_E_NUMERIC  // a NaN or an infinity came out
	Cancel   Status = C.SQ_E_CANCEL   // Context.Cancel stopped the call
)

func (s Status) Error() string { return C.GoString(C.sq_status_string(C.int32_t(s))) }

// Error is a failed call: its status, and the library's sentence about the cause.
type Error struct {
	Status Status
	Text   string
}

func (e *Error) Error() string { return "sq: " + e.Text }

// Unwrap gives the status to errors.Is.
func (e *Error) Unwrap() error { return e.Status }

// ErrClosed is returned by whatever is used after its Close.
var ErrClosed = errors.New("sq: used after Close")

func errBusy(what string) error { return &Error{Busy, what + " is in use by another call"} }

// failure makes the error of a call that left its sentence in text, or nil. Without a sentence the status speaks.
func failure(status C.int32_t, text string) error {
	if status == C.SQ_OK {
		return nil
	}
	if text == "" {
		text = Status(status).Error()
	}
	return &Error{Status(status), text}
}

// number is an int as the library takes it. What 32 bits cannot hold becomes their largest value, which the library refuses.
func number(n int) C.uint32_t {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return C.uint32_t(n)
}

// cString copies a string for C, to be freed; nil for "". C would read a string with a NUL in it only up to there.
func cString(s string) (*C.char, error) {
	if strings.ContainsRune(s, 0) {
		return nil, &Error{Arg, fmt.Sprintf("%q has a NUL in it", s)}
	}
	if s == "" {
		return nil, nil
	}
	return C.CString(s), nil
}

func freeString(s *C.char) { C.free(unsafe.Pointer(s)) }

// LibraryVersion is "MAJOR.MINOR.PATCH" of the library that is running.
func LibraryVersion() string { return C.GoString(C.sq_version_string()) }

// checkABI refuses a library that is older than the header this package was built with.
func checkABI() error {
	if have := C.sq_abi_version(); have < C.SQ_ABI_VERSION {
		return &Error{Version, fmt.Sprintf("the library has ABI version %d, and this program needs %d", have, C.SQ_ABI_VERSION)}
	}
	return nil
}
