package sq

// #include <sq.h>
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// Context computes. It belongs to one goroutine at a time: a second call while one runs is Busy. Only Cancel may be called meanwhile.
type Context struct {
	running sync.Mutex // held by every call and by Close
	freeing sync.Mutex // held by Cancel, and by Close while it frees; always taken last
	p       *C.sq_ctx  // nil after Close; read under either mutex, written under both
	labels  []string
	width   int
	a, b    textBuffer // kept from call to call, as large as the largest batch was
}

// ContextOptions says how large a context is and how it works.
type ContextOptions struct {
	Threads   int    // threads that compute, the caller's included; 0: the physical cores that the process may use
	MaxTokens int    // most tokens that run together; 0: the model's, at least 512 and at most 8192
	MaxTexts  int    // most texts that run together; 0: 64
	NoTuning  bool   // take the default plan of each shape, try nothing
	Tuning    string // what Tuning of another context gave
}

// NewContext makes a context: its memory, and Threads - 1 workers that sleep while idle. It outlives the model's Close.
func (m *Model) NewContext(o ContextOptions) (*Context, error) {
	c := &Context{labels: m.labels, width: m.info.EmbedWidth}
	err := m.use(func(p *C.sq_model) error {
		var params C.sq_ctx_params
		C.sq_ctx_params_init(&params, C.sizeof_sq_ctx_params)
		params.n_threads = number(o.Threads)
		params.max_tokens = number(o.MaxTokens)
		params.max_seqs = number(o.MaxTexts)
		params.no_tuning = flag(o.NoTuning)
		tuning, err := cString(o.Tuning)
		defer freeString(tuning)
		if err != nil {
			return err
		}
		params.tuning = tuning
		var text [256]C.char
		status := C.sq_ctx_create(p, &params, &c.p, &text[0], C.size_t(len(text)))
		return failure(status, C.GoString(&text[0]))
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close stops the workers and frees the context. Busy while a call runs, and then nothing is closed.
func (c *Context) Close() error {
	if !c.running.TryLock() {
		return errBusy("the context")
	}
	defer c.running.Unlock()
	if c.p == nil {
		return ErrClosed
	}
	c.freeing.Lock()
	defer c.freeing.Unlock()
	C.sq_ctx_free(c.p)
	c.p = nil
	return nil
}

// Cancel makes the call that runs on the context return the status Cancel soon; a call that has not reached the library yet goes on. Any goroutine may call
// it, at any time.
func (c *Context) Cancel() {
	c.freeing.Lock()
	defer c.freeing.Unlock()
	if c.p != nil {
		C.sq_ctx_cancel(c.p)
	}
}

// Tuning gives the plans that the context has found, for ContextOptions.Tuning of another one on such a machine.
func (c *Context) Tuning() (string, error) {
	var text string
	err := c.call(func(*runtime.Pinner) C.int32_t {
		var n C.size_t
		status := C.sq_ctx_tuning(c.p, nil, 0, &n)
		if status != C.SQ_E_SPACE {
			return status
		}
		buffer := make([]byte, n)
		status = C.sq_ctx_tuning(c.p, (*C.char)(unsafe.Pointer(&buffer[0])), n, &n)
		text = string(buffer)
		return status
	})
	return text, err
}

// call runs one of the library's functions on c.p, alone. What it pins stays in place until the function is back.
func (c *Context) call(function func(pin *runtime.Pinner) C.int32_t) error {
	if !c.running.TryLock() {
		return errBusy("the context")
	}
	defer c.running.Unlock()
	if c.p == nil {
		return ErrClosed
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	if status := function(&pin); status != C.SQ_OK {
		return failure(status, C.GoString(C.sq_ctx_error(c.p)))
	}
	return nil
}

// textBuffer lays texts end to end in Go memory, as the library takes them.
type textBuffer struct {
	bytes  []byte
	starts []C.size_t // one more than there are texts
}

// fill copies n texts into the buffer and pins it: C memory may point to it until pin lets go.
func (t *textBuffer) fill(pin *runtime.Pinner, n int, text func(i int) string) (bytes *C.char, starts *C.size_t) {
	t.bytes, t.starts = t.bytes[:0], append(t.starts[:0], 0)
	for i := 0; i < n; i++ {
		t.bytes = append(t.bytes, text(i)...)
		t.starts = append(t.starts, C.size_t(len(t.bytes)))
	}
	pin.Pin(&t.starts[0])
	if len(t.bytes) == 0 {
		return nil, &t.starts[0]
	}
	pin.Pin(&t.bytes[0])
	return (*C.char)(unsafe.Pointer(&t.bytes[0])), &t.starts[0]
}

// singles and pairs describe texts to the library; what they return is valid until pin lets go.

func (c *Context) singles(pin *runtime.Pinner, texts []string) C.sq_texts {
	t := C.sq_texts{size: C.sizeof_sq_texts, n_texts: number(len(texts))}
	t.a, t.a_starts = c.a.fill(pin, len(texts), func(i int) string { return texts[i] })
	return t
}

func (c *Context) pairs(pin *runtime.Pinner, pairs []Pair) C.sq_texts {
	t := C.sq_texts{size: C.sizeof_sq_texts, n_texts: number(len(pairs))}
	t.a, t.a_starts = c.a.fill(pin, len(pairs), func(i int) string { return pairs[i].A })
	t.b, t.b_starts = c.b.fill(pin, len(pairs), func(i int) string { return pairs[i].B })
	return t
}
