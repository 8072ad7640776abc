package sq

// #include <sq.h>
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Model is a model file, mapped. It never changes, and any number of goroutines may use it at once.
type Model struct {
	mu     sync.RWMutex // read-locked by every call, locked by Close
	p      *C.sq_model  // nil after Close
	info   Info
	labels []string
}

// LoadOptions says how a model file is opened.
type LoadOptions struct {
	Copy      bool   // read the file into private memory, so that later changes to it cannot reach this process
	Verify    bool   // check every tensor's checksum
	HugePages bool   // as Copy, in large pages where the kernel has them
	ISA       string // highest instruction set to use: "plain", "avx2", "avxvnni", "avx512vnni", "amx"; "": the best
}

// Head says what a model can do beside embedding.
type Head uint32

const (
	HeadNone     Head = C.SQ_HEAD_NONE
	HeadClassify Head = C.SQ_HEAD_CLASSIFY
	HeadAnswer   Head = C.SQ_HEAD_ANSWER
	HeadTag      Head = C.SQ_HEAD_TAG
)

// Pooling says how a text's vector is made of its tokens'.
type Pooling uint32

const (
	PoolModel Pooling = C.SQ_POOL_NONE // as the checkpoint says; the mean where it does not say
	PoolMean  Pooling = C.SQ_POOL_MEAN
	PoolCLS   Pooling = C.SQ_POOL_CLS
	PoolMax   Pooling = C.SQ_POOL_MAX
)

// Info describes a model.
type Info struct {
	Layers       int
	Width        int // floats in a token's vector
	EmbedWidth   int // floats in the vector of a text that Embed gives
	VocabSize    int
	MaxTokens    int // longest text by the checkpoint's settings, special tokens included
	MaxPositions int // longest text that the position table allows
	Pooling      Pooling
	Normalize    bool // vectors are scaled to length 1
	Head         Head
	MultiLabel   bool // labels are independent: scores are sigmoids, not a softmax
	FileBytes    int64
	ISA          string // the instruction set that contexts use
}

// Load opens a model file.
func Load(path string, o LoadOptions) (*Model, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	cPath, errPath := cString(path)
	defer freeString(cPath)
	isa, errISA := cString(o.ISA)
	defer freeString(isa)
	if err := errors.Join(errPath, errISA); err != nil {
		return nil, err
	}
	var params C.sq_model_params
	C.sq_model_params_init(&params, C.sizeof_sq_model_params)
	params.copy = flag(o.Copy)
	params.verify = flag(o.Verify)
	params.huge_pages = flag(o.HugePages)
	params.isa = isa
	m := &Model{}
	var text [256]C.char
	status := C.sq_model_load(cPath, &params, &m.p, &text[0], C.size_t(len(text)))
	if err := failure(status, C.GoString(&text[0])); err != nil {
		return nil, err
	}
	m.describe()
	return m, nil
}

func flag(is bool) C.uint32_t {
	if is {
		return 1
	}
	return 0
}

// describe copies what never changes, so that it can be asked for without the library.
func (m *Model) describe() {
	i := C.sq_model_info{size: C.sizeof_sq_model_info}
	C.sq_model_get_info(m.p, &i)
	m.info = Info{
		Layers: int(i.n_layers), Width: int(i.width), EmbedWidth: int(i.embed_width), VocabSize: int(i.vocab_size),
		MaxTokens: int(i.max_tokens), MaxPositions: int(i.max_positions), Pooling: Pooling(i.pooling), Normalize: i.normalize != 0,
		Head: Head(i.head), MultiLabel: i.multi_label != 0, FileBytes: int64(i.file_bytes), ISA: C.GoString(C.sq_isa_string(m.p)),
	}
	for l := C.uint32_t(0); l < i.n_labels; l++ {
		var n C.size_t
		name := C.sq_model_label(m.p, l, &n)
		if name == nil {
			break // an answer head has logits without names
		}
		m.labels = append(m.labels, C.GoStringN(name, C.int(n)))
	}
}

// Info describes the model; also after Close.
func (m *Model) Info() Info { return m.info }

// Labels are the names of the classes or tags, in the order of scores and logits. The caller must not change them.
func (m *Model) Labels() []string { return m.labels }

// Meta is a metadata entry of the file as text; lists have a newline after each element.
func (m *Model) Meta(key string) (string, error) {
	var value string
	err := m.use(func(p *C.sq_model) error {
		cKey, err := cString(key)
		defer freeString(cKey)
		if err != nil {
			return err
		}
		var n C.size_t
		if status := C.sq_model_meta(p, cKey, nil, 0, &n); status != C.SQ_E_SPACE {
			return failure(status, "")
		}
		buffer := make([]byte, n)
		status := C.sq_model_meta(p, cKey, (*C.char)(unsafe.Pointer(&buffer[0])), n, &n)
		value = string(buffer)
		return failure(status, "")
	})
	return value, err
}

// Close frees the model. Contexts hold what they need, so that they live on. Busy while a call runs, and then nothing is closed.
func (m *Model) Close() error {
	if !m.mu.TryLock() {
		return errBusy("the model")
	}
	defer m.mu.Unlock()
	if m.p == nil {
		return ErrClosed
	}
	C.sq_model_free(m.p)
	m.p = nil
	return nil
}

// use runs call with the model, which is not closed meanwhile.
func (m *Model) use(call func(p *C.sq_model) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.p == nil {
		return ErrClosed
	}
	return call(m.p)
}

// NoLimit as TextOptions.MaxLen lets a text be as long as the position table allows.
const NoLimit uint32 = C.UINT32_MAX

// TextOptions says how texts become tokens.
type TextOptions struct {
	MaxLen         uint32 // most tokens, special tokens included; 0: the model's MaxTokens
	Truncate       bool   // cut longer texts; otherwise they are an error (Limit)
	SpecialsAsText bool   // "[SEP]" in a text is five characters, not the special token
}

// Token is a piece of a text.
type Token struct {
	ID         int32
	Type       int32 // segment
	Start, End int   // bytes of the text it came from; 0, 0 for special tokens that sq added
	Source     int   // 0: the first text, 1: the second, -1: a special token that sq added
}

// Tokenize gives a text's tokens, special tokens around them.
func (m *Model) Tokenize(text string, o TextOptions) ([]Token, error) {
	return m.tokenize(text, nil, 0, o)
}

// TokenizePair gives the tokens of a pair of texts.
func (m *Model) TokenizePair(a, b string, o TextOptions) ([]Token, error) {
	second, n := chars(b)
	if second == nil {
		second = (*C.char)(unsafe.Pointer(&emptyText)) // an empty second text, and not none
	}
	return m.tokenize(a, second, n, o)
}

// What an empty text points to where nil would mean that there is none.
var emptyText byte

// chars lends a string's bytes to a call.
func chars(s string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// mostTokens is how long a text may be.
func (m *Model) mostTokens(o TextOptions) C.size_t {
	if o.MaxLen == 0 {
		return C.size_t(m.info.MaxTokens)
	}
	return C.size_t(o.MaxLen)
}

func (m *Model) tokenize(a string, b *C.char, nB C.size_t, o TextOptions) ([]Token, error) {
	var tokens []Token
	params := C.sq_tokenize_params{
		size: C.sizeof_sq_tokenize_params, max_len: C.uint32_t(o.MaxLen), truncate: flag(o.Truncate), specials_as_text: flag(o.SpecialsAsText),
	}
	first, nA := chars(a)
	err := m.use(func(p *C.sq_model) error {
		capacity := min(16+(nA+nB)/2, m.mostTokens(o)) // longer texts are cut or refused
		for {
			ids, types, sources := make([]C.int32_t, capacity), make([]C.int32_t, capacity), make([]C.int32_t, capacity)
			spans := make([]C.uint32_t, 2*capacity)
			var n C.size_t
			status := C.sq_tokenize(p, first, nA, b, nB, &params, &ids[0], &types[0], &spans[0], &sources[0], capacity, &n)
			switch status {
			case C.SQ_OK:
				tokens = make([]Token, n)
				for i := range tokens {
					tokens[i] = Token{int32(ids[i]), int32(types[i]), int(spans[2*i]), int(spans[2*i+1]), int(sources[i])}
				}
				return nil
			case C.SQ_E_SPACE:
				capacity = n
			case C.SQ_E_LIMIT:
				return failure(status, fmt.Sprintf("%s: %d tokens", Limit.Error(), n))
			default:
				return failure(status, "")
			}
		}
	})
	return tokens, err
}
