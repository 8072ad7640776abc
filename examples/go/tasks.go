package sq

// #include <sq.h>
import "C"

import (
	"runtime"
	"unsafe"
)

// ---- embed ----

// Normalize says whether vectors are scaled to length 1.
type Normalize uint32

const (
	NormalizeModel Normalize = C.SQ_NORMALIZE_MODEL // as the checkpoint says
	NormalizeYes   Normalize = C.SQ_NORMALIZE_YES
	NormalizeNo    Normalize = C.SQ_NORMALIZE_NO
)

// EmbedOptions says how texts become vectors.
type EmbedOptions struct {
	TextOptions
	Pooling    Pooling
	Normalize  Normalize
	Dimensions int // keep the first so many entries of each vector; 0: all
}

// Embed gives a vector for each text. Any number of texts; they run in batches that fit the context.
func (c *Context) Embed(texts []string, o EmbedOptions) ([][]float32, error) {
	width := c.width
	if o.Dimensions > 0 && o.Dimensions < width {
		width = o.Dimensions
	}
	out := make([]float32, len(texts)*width)
	params := C.sq_embed_params{
		size: C.sizeof_sq_embed_params, pooling: C.uint32_t(o.Pooling), normalize: C.uint32_t(o.Normalize), dimensions: number(o.Dimensions),
		max_len: C.uint32_t(o.MaxLen), truncate: flag(o.Truncate), specials_as_text: flag(o.SpecialsAsText),
	}
	err := c.call(func(pin *runtime.Pinner) C.int32_t {
		t := c.singles(pin, texts)
		var n C.size_t
		return C.sq_embed(c.p, &t, &params, floats(out), C.size_t(len(out)), &n)
	})
	if err != nil {
		return nil, err
	}
	return rows(out, len(texts)), nil
}

// floats lends a slice to a call.
func floats(x []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(x))) }

// rows cuts a matrix into its n rows, which share its memory.
func rows(matrix []float32, n int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		width := len(matrix) / n
		out[i] = matrix[i*width : (i+1)*width : (i+1)*width]
	}
	return out
}

// ---- classify ----

// Pair is two texts that a model reads together.
type Pair struct{ A, B string }

// Classes has what a model says about a text, an entry for each label.
type Classes struct {
	Scores []float32 // softmax of the logits; sigmoids for a multi-label model and for one label
	Logits []float32
}

// Best is the index of the highest score, for Model.Labels.
func (c Classes) Best() int {
	best := 0
	for i, score := range c.Scores {
		if score > c.Scores[best] {
			best = i
		}
	}
	return best
}

// Classify gives scores for each text.
func (c *Context) Classify(texts []string, o TextOptions) ([]Classes, error) {
	return c.classify(len(texts), o, func(pin *runtime.Pinner) C.sq_texts { return c.singles(pin, texts) })
}

// ClassifyPairs gives scores for each pair.
func (c *Context) ClassifyPairs(pairs []Pair, o TextOptions) ([]Classes, error) {
	return c.classify(len(pairs), o, func(pin *runtime.Pinner) C.sq_texts { return c.pairs(pin, pairs) })
}

func (c *Context) classify(n int, o TextOptions, texts func(*runtime.Pinner) C.sq_texts) ([]Classes, error) {
	scores, logits := make([]float32, n*len(c.labels)), make([]float32, n*len(c.labels))
	params := classifyParams(o)
	err := c.call(func(pin *runtime.Pinner) C.int32_t {
		t := texts(pin)
		var needed C.size_t
		return C.sq_classify(c.p, &t, &params, floats(scores), floats(logits), C.size_t(len(scores)), &needed)
	})
	if err != nil {
		return nil, err
	}
	out := make([]Classes, n)
	scoreRows, logitRows := rows(scores, n), rows(logits, n)
	for i := range out {
		out[i] = Classes{scoreRows[i], logitRows[i]}
	}
	return out, nil
}

func classifyParams(o TextOptions) C.sq_classify_params {
	return C.sq_classify_params{
		size: C.sizeof_sq_classify_params, max_len: C.uint32_t(o.MaxLen), truncate: flag(o.Truncate), specials_as_text: flag(o.SpecialsAsText),
	}
}

// ---- rerank ----

// Ranked is a document's place in an answer to a query.
type Ranked struct {
	Document int // its index
	Score    float32
}

// Rerank orders documents by how well they answer the query, the best first, with a classifier of one label.
func (c *Context) Rerank(query string, documents []string, o TextOptions) ([]Ranked, error) {
	scores, order := make([]float32, len(documents)), make([]uint32, len(documents))
	params := classifyParams(o)
	q, nQ := chars(query)
	err := c.call(func(pin *runtime.Pinner) C.int32_t {
		t := c.singles(pin, documents)
		var n C.size_t
		return C.sq_rerank(c.p, q, nQ, &t, &params, floats(scores), (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(order))), C.size_t(len(scores)), &n)
	})
	if err != nil {
		return nil, err
	}
	ranked := make([]Ranked, len(order))
	for i, document := range order {
		ranked[i] = Ranked{int(document), scores[document]}
	}
	return ranked, nil
}

// ---- answer ----

// AnswerOptions says how a context is searched.
type AnswerOptions struct {
	Window         int  // most tokens of a window, question included; 0: the model's MaxTokens
	Stride         int  // tokens that two windows share; 0: 128, or half the room where that is less
	MaxAnswer      int  // most tokens of an answer; 0: 30
	AllowNull      bool // "no answer" competes, as Start = End = 0
	SpecialsAsText bool
}

// Answer is a part of a context that answers a question.
type Answer struct {
	Start, End         int // bytes of the context
	Score, Probability float32
}

// The library finds the 20 best, and "no answer".
const mostAnswers = 21

// Answer finds the answers to a question in a context of any length, the best first, at most 20 and "no answer". An empty context has none.
func (c *Context) Answer(question, context string, o AnswerOptions) ([]Answer, error) {
	params := C.sq_answer_params{
		size: C.sizeof_sq_answer_params, window: number(o.Window), stride: number(o.Stride), max_answer: number(o.MaxAnswer),
		allow_null: flag(o.AllowNull), specials_as_text: flag(o.SpecialsAsText),
	}
	var spans [mostAnswers]C.sq_answer_span
	var n C.size_t
	q, nQ := chars(question)
	text, nText := chars(context)
	err := c.call(func(*runtime.Pinner) C.int32_t {
		return C.sq_answer(c.p, q, nQ, text, nText, &params, &spans[0], mostAnswers, &n)
	})
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, n)
	for i := range answers {
		s := spans[i]
		answers[i] = Answer{int(s.start), int(s.end), float32(s.score), float32(s.probability)}
	}
	return answers, nil
}

// ---- tag ----

// TagOptions says what is tagged.
type TagOptions struct {
	TextOptions
	Words bool // an entry for each word, label "O" included; otherwise for each entity
}

// Entity is a labelled part of a text.
type Entity struct {
	Text       int // index of the text
	Label      string
	Start, End int // bytes of the text
	Score      float32
	Words      int
}

// Tag finds the entities of texts, in their order.
func (c *Context) Tag(texts []string, o TagOptions) ([]Entity, error) {
	params := C.sq_tag_params{
		size: C.sizeof_sq_tag_params, max_len: C.uint32_t(o.MaxLen), truncate: flag(o.Truncate), specials_as_text: flag(o.SpecialsAsText),
	}
	if o.Words {
		params.mode = C.SQ_TAG_WORDS
	}
	found := make([]C.sq_entity, 16*(len(texts)+1))
	var n C.size_t
	err := c.call(func(pin *runtime.Pinner) C.int32_t {
		t := c.singles(pin, texts)
		status := C.sq_tag(c.p, &t, &params, &found[0], C.size_t(len(found)), &n)
		if status == C.SQ_E_SPACE {
			found = make([]C.sq_entity, n)
			status = C.sq_tag(c.p, &t, &params, &found[0], n, &n)
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	entities := make([]Entity, n)
	for i := range entities {
		e := found[i]
		entities[i] = Entity{int(e.text), c.labels[e.label], int(e.start), int(e.end), float32(e.score), int(e.n_words)}
	}
	return entities, nil
}
