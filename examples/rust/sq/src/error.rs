//! Failed calls.

use std::ffi::{c_char, CStr};
use std::fmt;

/// The library's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// An argument is out of range or inconsistent.
    Arg,
    /// The operating system refused: open, map, read.
    Io,
    /// The model file is damaged or is no model file.
    Format,
    /// The file is newer than the library, or the library older than this crate.
    Version,
    /// This machine lacks the instruction set asked for.
    Cpu,
    /// Out of memory, or a worker thread could not be started.
    Mem,
    /// The input is longer than the model or the context allows.
    Limit,
    /// The model has no head for this task.
    Task,
    /// The context was made before a fork.
    Busy,
    /// A NaN or an infinity came out.
    Numeric,
    /// A [`Canceller`](crate::Canceller) stopped the call.
    Cancel,
    /// Any other code: a fault of the library, or of this crate.
    Other(i32),
}

impl From<i32> for Status {
    fn from(code: i32) -> Status {
        match code {
            sq_sys::SQ_E_ARG => Status::Arg,
            sq_sys::SQ_E_IO => Status::Io,
            sq_sys::SQ_E_FORMAT => Status::Format,
            sq_sys::SQ_E_VERSION => Status::Version,
            sq_sys::SQ_E_CPU => Status::Cpu,
            sq_sys::SQ_E_MEM => Status::Mem,
            sq_sys::SQ_E_LIMIT => Status::Limit,
            sq_sys::SQ_E_TASK => Status::Task,
            sq_sys::SQ_E_BUSY => Status::Busy,
            sq_sys::SQ_E_NUMERIC => Status::Numeric,
            sq_sys::SQ_E_CANCEL => Status::Cancel,
            other => Status::Other(other),
        }
    }
}

/// A failed call: its status, and the library's sentence about the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub status: Status,
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error {
            status,
            text: text.into(),
        }
    }
}

/// The outcome of a call that left its sentence in `text`; without a sentence the code's name speaks.
pub(crate) fn check(code: i32, text: impl FnOnce() -> String) -> Result<(), Error> {
    if code == sq_sys::SQ_OK {
        return Ok(());
    }
    let text = Some(text()).filter(|t| !t.is_empty());
    Err(Error::new(code.into(), text.unwrap_or_else(|| name_of(code))))
}

pub(crate) fn name_of(code: i32) -> String {
    owned(unsafe { sq_sys::sq_status_string(code) })
}

/// A copy of one of the library's strings, which are NUL-terminated; "" for null.
pub(crate) fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Room for the sentence of a call that has no context yet.
pub(crate) type Sentence = [c_char; 256];

pub(crate) fn sentence() -> Sentence {
    [0; 256]
}
