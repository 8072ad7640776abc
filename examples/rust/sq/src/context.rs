//! Contexts: every task, text in and answers out.

use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::{null, null_mut, NonNull};
use std::sync::{Arc, Mutex};

use crate::error::{check, owned, sentence};
use crate::texts::Buffers;
use crate::{Error, Model, Status, TextOptions};

/// How large a context is and how it works.
#[derive(Clone, Debug, Default)]
pub struct ContextOptions {
    /// Threads that compute, the caller's included; 0: the physical cores that the process may use.
    pub threads: u32,
    /// Most tokens that run together; 0: the model's, at least 512 and at most 8192.
    pub max_tokens: u32,
    /// Most texts that run together; 0: 64.
    pub max_texts: u32,
    /// Take the default plan of each shape, try nothing.
    pub no_tuning: bool,
    /// What `sq tune` wrote on such a machine.
    pub tuning: Option<String>,
}

/// Computes, for one thread at a time. It can be moved to another thread, and cannot be shared.
pub struct Context<'m> {
    handle: Arc<Handle>,
    model: &'m Model,
    buffers: Buffers,
    not_sync: PhantomData<std::cell::Cell<()>>,
}

/// The library's context, `None` once it is freed. Cancellers look at it under the mutex; calls, which have the context to themselves,
/// copy the pointer and let go of the mutex, or else nobody could cancel them.
struct Handle(Mutex<Option<NonNull<sq_sys::sq_ctx>>>);

// A context may be used by any one thread, and cancelled by all.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<NonNull<sq_sys::sq_ctx>>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Stops a context's calls from another thread.
#[derive(Clone)]
pub struct Canceller(Arc<Handle>);

impl Canceller {
    /// Makes the call that runs end with [`Status::Cancel`] soon. A call that has not reached the library yet goes on.
    pub fn cancel(&self) {
        if let Some(handle) = *self.0.lock() {
            unsafe { sq_sys::sq_ctx_cancel(handle.as_ptr()) }
        }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.lock().take() {
            unsafe { sq_sys::sq_ctx_free(handle.as_ptr()) }
        }
    }
}

impl<'m> Context<'m> {
    pub(crate) fn new(model: &'m Model, options: &ContextOptions) -> Result<Context<'m>, Error> {
        let nul = |_| Error::new(Status::Arg, "the plans have a NUL in them");
        let tuning = options.tuning.as_deref().map(CString::new).transpose().map_err(nul)?;
        let params = sq_sys::sq_ctx_params {
            size: size_of::<sq_sys::sq_ctx_params>() as u32,
            n_threads: options.threads,
            max_tokens: options.max_tokens,
            max_seqs: options.max_texts,
            cpus: null(),
            spin_us: 0,
            no_tuning: options.no_tuning.into(),
            tuning: tuning.as_ref().map_or(null(), |tuning| tuning.as_ptr()),
        };
        let mut handle = null_mut();
        let mut text = sentence();
        let code =
            unsafe { sq_sys::sq_ctx_create(model.handle(), &params, &mut handle, text.as_mut_ptr(), text.len()) };
        check(code, || owned(text.as_ptr()))?;
        let handle = Arc::new(Handle(Mutex::new(NonNull::new(handle))));
        Ok(Context {
            handle,
            model,
            buffers: Buffers::default(),
            not_sync: PhantomData,
        })
    }

    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// What stops this context's calls from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.handle.clone())
    }

    fn raw(&self) -> *mut sq_sys::sq_ctx {
        self.handle.lock().expect("only drop frees it").as_ptr()
    }

    fn check(&self, ctx: *mut sq_sys::sq_ctx, code: i32) -> Result<(), Error> {
        check(code, || owned(unsafe { sq_sys::sq_ctx_error(ctx) }))
    }
}

// ---- embed ----

/// How a text's vector is made of its tokens'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// As the checkpoint says; the mean where it does not say.
    #[default]
    Model,
    Mean,
    Cls,
    Max,
}

/// Whether vectors are scaled to length 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// As the checkpoint says.
    #[default]
    Model,
    Yes,
    No,
}

/// How texts become vectors.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedOptions {
    pub text: TextOptions,
    pub pooling: Pooling,
    pub normalize: Normalize,
    /// Keep the first so many entries of each vector; 0: all.
    pub dimensions: u32,
}

impl Context<'_> {
    /// A vector for each text. Any number of texts; they run in batches that fit the context.
    pub fn embed<T: AsRef<[u8]>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>, Error> {
        let params = sq_sys::sq_embed_params {
            size: size_of::<sq_sys::sq_embed_params>() as u32,
            pooling: match options.pooling {
                Pooling::Model => sq_sys::SQ_POOL_NONE,
                Pooling::Mean => sq_sys::SQ_POOL_MEAN,
                Pooling::Cls => sq_sys::SQ_POOL_CLS,
                Pooling::Max => sq_sys::SQ_POOL_MAX,
            },
            normalize: match options.normalize {
                Normalize::Model => sq_sys::SQ_NORMALIZE_MODEL,
                Normalize::Yes => sq_sys::SQ_NORMALIZE_YES,
                Normalize::No => sq_sys::SQ_NORMALIZE_NO,
            },
            dimensions: options.dimensions,
            max_len: options.text.max_len,
            truncate: options.text.truncate.into(),
            specials_as_text: options.text.specials_as_text.into(),
            reserved: 0,
        };
        let all = self.model.info().embed_width;
        let width = if options.dimensions == 0 {
            all
        } else {
            all.min(options.dimensions as usize)
        };
        let mut out = vec![0.0; texts.len() * width];
        let mut n = 0;
        let (ctx, texts) = (self.raw(), self.buffers.singles(texts));
        let code = unsafe { sq_sys::sq_embed(ctx, &texts, &params, out.as_mut_ptr(), out.len(), &mut n) };
        self.check(ctx, code)?;
        Ok(rows(out, width))
    }
}

/// Cuts a matrix into its rows.
fn rows(matrix: Vec<f32>, width: usize) -> Vec<Vec<f32>> {
    if matrix.len() == width {
        return vec![matrix];
    }
    matrix.chunks_exact(width.max(1)).map(<[f32]>::to_vec).collect()
}

// ---- classify ----

/// What a model says about a text: an entry for each label.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// Softmax of the logits; sigmoids for a multi-label model and for one label.
    pub scores: Vec<f32>,
    pub logits: Vec<f32>,
}

impl Classes {
    /// The index of the highest score, for [`Model::labels`].
    pub fn best(&self) -> usize {
        let higher = |best, i| if self.scores[i] > self.scores[best] { i } else { best };
        (0..self.scores.len()).fold(0, higher)
    }
}

fn classify_params(options: &TextOptions) -> sq_sys::sq_classify_params {
    sq_sys::sq_classify_params {
        size: size_of::<sq_sys::sq_classify_params>() as u32,
        max_len: options.max_len,
        truncate: options.truncate.into(),
        specials_as_text: options.specials_as_text.into(),
    }
}

impl Context<'_> {
    /// Classes of each text.
    pub fn classify<T: AsRef<[u8]>>(&mut self, texts: &[T], options: &TextOptions) -> Result<Vec<Classes>, Error> {
        let texts = self.buffers.singles(texts);
        self.classes(&texts, options)
    }

    /// Classes of each pair of texts.
    pub fn classify_pairs<T: AsRef<[u8]>>(
        &mut self,
        pairs: &[(T, T)],
        options: &TextOptions,
    ) -> Result<Vec<Classes>, Error> {
        let texts = self.buffers.pairs(pairs);
        self.classes(&texts, options)
    }

    /// `texts` points into this context's buffers.
    fn classes(&mut self, texts: &sq_sys::sq_texts, options: &TextOptions) -> Result<Vec<Classes>, Error> {
        let width = self.model.info().n_labels;
        let mut scores = vec![0.0; texts.n_texts as usize * width];
        let mut logits = scores.clone();
        let params = classify_params(options);
        let mut n = 0;
        let ctx = self.raw();
        let code = unsafe {
            sq_sys::sq_classify(
                ctx,
                texts,
                &params,
                scores.as_mut_ptr(),
                logits.as_mut_ptr(),
                scores.len(),
                &mut n,
            )
        };
        self.check(ctx, code)?;
        let both = rows(scores, width).into_iter().zip(rows(logits, width));
        Ok(both.map(|(scores, logits)| Classes { scores, logits }).collect())
    }
}

// ---- rerank ----

/// A document's place in an answer to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its index.
    pub document: usize,
    pub score: f32,
}

impl Context<'_> {
    /// The documents by how well they answer the query, the best first, from a classifier of one label.
    pub fn rerank<T: AsRef<[u8]>>(
        &mut self,
        query: impl AsRef<[u8]>,
        documents: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Ranked>, Error> {
        let query = query.as_ref();
        let mut scores = vec![0.0; documents.len()];
        let mut order = vec![0; documents.len()];
        let params = classify_params(options);
        let mut n = 0;
        let (ctx, texts) = (self.raw(), self.buffers.singles(documents));
        let code = unsafe {
            sq_sys::sq_rerank(
                ctx,
                query.as_ptr().cast(),
                query.len(),
                &texts,
                &params,
                scores.as_mut_ptr(),
                order.as_mut_ptr(),
                scores.len(),
                &mut n,
            )
        };
        self.check(ctx, code)?;
        let ranked = |document: u32| Ranked {
            document: document as usize,
            score: scores[document as usize],
        };
        Ok(order.into_iter().map(ranked).collect())
    }
}

// ---- answer ----

/// How a context is searched.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerOptions {
    /// Most tokens of a window, question included; 0: the model's `max_tokens`.
    pub window: u32,
    /// Tokens that two windows share; 0: 128, or half the room where that is less.
    pub stride: u32,
    /// Most tokens of an answer; 0: 30.
    pub max_answer: u32,
    /// "No answer" competes, as `start == end == 0`.
    pub allow_null: bool,
    pub specials_as_text: bool,
}

/// A part of a context that answers a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Bytes of the context.
    pub start: usize,
    pub end: usize,
    pub score: f32,
    pub probability: f32,
}

/// The library finds the 20 best, and "no answer".
const MOST_ANSWERS: usize = 21;

impl Context<'_> {
    /// The answers to a question in a context of any length, the best first. An empty context has none.
    pub fn answer(
        &mut self,
        question: impl AsRef<[u8]>,
        context: impl AsRef<[u8]>,
        options: &AnswerOptions,
    ) -> Result<Vec<Answer>, Error> {
        let (question, context) = (question.as_ref(), context.as_ref());
        let params = sq_sys::sq_answer_params {
            size: size_of::<sq_sys::sq_answer_params>() as u32,
            window: options.window,
            stride: options.stride,
            max_answer: options.max_answer,
            allow_null: options.allow_null.into(),
            specials_as_text: options.specials_as_text.into(),
        };
        let mut spans = [sq_sys::sq_answer_span::default(); MOST_ANSWERS];
        let mut n = 0;
        let ctx = self.raw();
        let code = unsafe {
            sq_sys::sq_answer(
                ctx,
                question.as_ptr().cast(),
                question.len(),
                context.as_ptr().cast(),
                context.len(),
                &params,
                spans.as_mut_ptr(),
                spans.len(),
                &mut n,
            )
        };
        self.check(ctx, code)?;
        let answer = |s: &sq_sys::sq_answer_span| Answer {
            start: s.start,
            end: s.end,
            score: s.score,
            probability: s.probability,
        };
        Ok(spans[..n].iter().map(answer).collect())
    }
}

// ---- tag ----

/// What is tagged.
#[derive(Clone, Copy, Debug, Default)]
pub struct TagOptions {
    pub text: TextOptions,
    /// An entry for each word, label "O" included; otherwise for each entity.
    pub words: bool,
}

/// A labelled part of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity<'m> {
    /// Index of the text.
    pub text: usize,
    pub label: &'m str,
    /// Bytes of the text.
    pub start: usize,
    pub end: usize,
    pub score: f32,
    pub words: usize,
}

impl<'m> Context<'m> {
    /// The entities of texts, in their order.
    pub fn tag<T: AsRef<[u8]>>(&mut self, texts: &[T], options: &TagOptions) -> Result<Vec<Entity<'m>>, Error> {
        let params = sq_sys::sq_tag_params {
            size: size_of::<sq_sys::sq_tag_params>() as u32,
            mode: if options.words { sq_sys::SQ_TAG_WORDS } else { 0 },
            max_len: options.text.max_len,
            truncate: options.text.truncate.into(),
            specials_as_text: options.text.specials_as_text.into(),
            reserved: 0,
        };
        let mut found = vec![sq_sys::sq_entity::default(); 16 * (texts.len() + 1)];
        let mut n = 0;
        let (ctx, texts) = (self.raw(), self.buffers.singles(texts));
        let mut code = unsafe { sq_sys::sq_tag(ctx, &texts, &params, found.as_mut_ptr(), found.len(), &mut n) };
        if code == sq_sys::SQ_E_SPACE {
            found.resize(n, Default::default());
            code = unsafe { sq_sys::sq_tag(ctx, &texts, &params, found.as_mut_ptr(), found.len(), &mut n) };
        }
        self.check(ctx, code)?;
        let model = self.model;
        let entity = |e: &sq_sys::sq_entity| Entity {
            text: e.text as usize,
            label: &model.labels()[e.label as usize],
            start: e.start,
            end: e.end,
            score: e.score,
            words: e.n_words as usize,
        };
        Ok(found[..n].iter().map(entity).collect())
    }
}
