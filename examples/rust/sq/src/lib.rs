//! BERT, DistilBERT and XLM-RoBERTa in INT8 on CPUs: the C library sq, made safe.
//!
//! A [`Model`] is a mapped file that any number of threads may use. A [`Context`] computes, for one thread at a time;
//! it borrows its model. A [`Pool`] lends contexts to as many threads as there are.
//!
//! ```no_run
//! # fn main() -> Result<(), sq::Error> {
//! let model = sq::Model::load("minilm.sq", &Default::default())?;
//! let mut context = model.context(&Default::default())?;
//! let vectors = context.embed(&["A man is eating.", "Someone has lunch."], &Default::default())?;
//! # Ok(()) }
//! ```
//!
//! Texts are `&str`, `String`, or bytes: each invalid sequence of UTF-8 counts as one U+FFFD. Offsets count bytes.
//! Results have the same bits as the C program's, in any context, beside any other texts.
//!
//! What would be a fault in C does not compile here. A context cannot outlive its model,
//!
//! ```compile_fail,E0597
//! fn context_outlives_model() -> Result<(), sq::Error> {
//!     let mut context;
//!     {
//!         let model = sq::Model::load("minilm.sq", &Default::default())?;
//!         context = model.context(&Default::default())?;
//!     }
//!     context.embed(&["text"], &Default::default())?;
//!     Ok(())
//! }
//! ```
//!
//! cannot be shared by threads (it can be moved to one),
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<sq::Context>();
//! ```
//!
//! and cannot be closed, or called again, while a call runs: every call borrows it mutably.
//!
//! ```compile_fail,E0499
//! fn two_at_once(context: &mut sq::Context) {
//!     std::thread::scope(|threads| {
//!         threads.spawn(|| context.embed(&["one"], &Default::default()));
//!         threads.spawn(|| context.embed(&["two"], &Default::default()));
//!     });
//! }
//! ```

mod context;
mod error;
mod model;
mod pool;
mod texts;

pub use context::{
    Answer, AnswerOptions, Canceller, Classes, Context, ContextOptions, EmbedOptions, Entity, Normalize, Pooling,
    Ranked, TagOptions,
};
pub use error::{Error, Status};
pub use model::{Head, Info, LoadOptions, Model, Token};
pub use pool::{Lent, Pool};
pub use texts::{TextOptions, NO_LIMIT};

/// "MAJOR.MINOR.PATCH" of the library that is running.
pub fn library_version() -> String {
    error::owned(unsafe { sq_sys::sq_version_string() })
}
