//! Texts as the library takes them.

use std::ffi::c_char;
use std::mem::size_of;

/// As [`TextOptions::max_len`]: a text may be as long as the position table allows.
pub const NO_LIMIT: u32 = u32::MAX;

/// How texts become tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// Most tokens, special tokens included; 0: the model's `max_tokens`.
    pub max_len: u32,
    /// Cut longer texts; otherwise they are [`Status::Limit`](crate::Status::Limit).
    pub truncate: bool,
    /// `[SEP]` in a text is five characters, not the special token.
    pub specials_as_text: bool,
}

/// Texts end to end, in buffers that are kept from call to call.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    starts: Vec<usize>, // one more than there are texts
}

impl Buffer {
    fn fill<'t>(&mut self, texts: impl Iterator<Item = &'t [u8]>) {
        self.bytes.clear();
        self.starts.clear();
        self.starts.push(0);
        for text in texts {
            self.bytes.extend_from_slice(text);
            self.starts.push(self.bytes.len());
        }
    }
}

/// So many that 32 bits cannot count them need more room for starts alone than machines have.
fn count(n: usize) -> u32 {
    n.try_into().expect("at most u32::MAX texts in a call")
}

#[derive(Default)]
pub(crate) struct Buffers {
    a: Buffer,
    b: Buffer,
}

impl Buffers {
    /// What it returns points into the buffers: valid until they are filled again.
    pub fn singles<T: AsRef<[u8]>>(&mut self, texts: &[T]) -> sq_sys::sq_texts {
        self.a.fill(texts.iter().map(AsRef::as_ref));
        sq_sys::sq_texts {
            size: size_of::<sq_sys::sq_texts>() as u32,
            n_texts: count(texts.len()),
            a: self.a.bytes.as_ptr().cast::<c_char>(),
            a_starts: self.a.starts.as_ptr(),
            b: std::ptr::null(),
            b_starts: std::ptr::null(),
        }
    }

    /// The same for pairs.
    pub fn pairs<T: AsRef<[u8]>>(&mut self, pairs: &[(T, T)]) -> sq_sys::sq_texts {
        self.a.fill(pairs.iter().map(|(a, _)| a.as_ref()));
        self.b.fill(pairs.iter().map(|(_, b)| b.as_ref()));
        sq_sys::sq_texts {
            size: size_of::<sq_sys::sq_texts>() as u32,
            n_texts: count(pairs.len()),
            a: self.a.bytes.as_ptr().cast::<c_char>(),
            a_starts: self.a.starts.as_ptr(),
            b: self.b.bytes.as_ptr().cast::<c_char>(),
            b_starts: self.b.starts.as_ptr(),
        }
    }
}
