//! Model files.

use std::ffi::{c_char, CString};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use crate::error::{check, name_of, owned, sentence};
use crate::{Context, ContextOptions, Error, Status, TextOptions};

/// How a model file is opened.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Read the file into private memory, so that later changes to it cannot reach this process.
    pub copy: bool,
    /// Check every tensor's checksum.
    pub verify: bool,
    /// As `copy`, in large pages where the kernel has them.
    pub huge_pages: bool,
    /// The highest instruction set to use, such as "avx2"; `None`: the best.
    pub isa: Option<String>,
}

/// What a model can do beside embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Head {
    None,
    Classify,
    Answer,
    Tag,
    /// One that is newer than this crate.
    Other(u32),
}

/// A description of a model.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    pub layers: usize,
    /// Floats in a token's vector.
    pub width: usize,
    /// Floats in the vector of a text.
    pub embed_width: usize,
    pub vocab_size: usize,
    /// Longest text by the checkpoint's settings, special tokens included.
    pub max_tokens: usize,
    /// Longest text that the position table allows.
    pub max_positions: usize,
    pub head: Head,
    /// Logits of a text or a token; 0 without a head.
    pub n_labels: usize,
    /// Labels are independent: scores are sigmoids, not a softmax.
    pub multi_label: bool,
}

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: i32,
    /// Segment.
    pub kind: i32,
    /// Bytes of the text it came from; 0, 0 for special tokens that sq added.
    pub start: usize,
    pub end: usize,
    /// 0: the first text, 1: the second, -1: a special token that sq added.
    pub source: i32,
}

/// A model file, mapped. It never changes, and any number of threads may use it at once.
pub struct Model {
    handle: NonNull<sq_sys::sq_model>,
    info: Info,
    labels: Vec<String>,
}

// The library promises that any number of threads may use a model, and that any of them may free it.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sq_sys::sq_model_free(self.handle.as_ptr()) }
    }
}

impl Model {
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model, Error> {
        check_abi()?;
        let path = c_string(path.as_ref().as_os_str().as_bytes())?;
        let isa = options.isa.as_ref().map(|isa| c_string(isa.as_bytes())).transpose()?;
        let params = sq_sys::sq_model_params {
            size: size_of::<sq_sys::sq_model_params>() as u32,
            copy: options.copy.into(),
            verify: options.verify.into(),
            huge_pages: options.huge_pages.into(),
            isa: isa.as_ref().map_or(null(), |isa| isa.as_ptr()),
        };
        let mut handle = null_mut();
        let mut text = sentence();
        let code = unsafe { sq_sys::sq_model_load(path.as_ptr(), &params, &mut handle, text.as_mut_ptr(), text.len()) };
        check(code, || owned(text.as_ptr()))?;
        let handle = NonNull::new(handle).expect("a loaded model has a handle");
        Ok(Model {
            handle,
            info: info_of(handle),
            labels: labels_of(handle),
        })
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The names of the classes or tags, in the order of scores and logits.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The instruction set that contexts use.
    pub fn isa(&self) -> String {
        owned(unsafe { sq_sys::sq_isa_string(self.handle.as_ptr()) })
    }

    /// A new context: its memory, and its workers, which sleep while idle.
    pub fn context(&self, options: &ContextOptions) -> Result<Context<'_>, Error> {
        Context::new(self, options)
    }

    pub(crate) fn handle(&self) -> *mut sq_sys::sq_model {
        self.handle.as_ptr()
    }

    /// A text's tokens, special tokens around them.
    pub fn tokenize(&self, text: impl AsRef<[u8]>, options: &TextOptions) -> Result<Vec<Token>, Error> {
        self.tokens(text.as_ref(), None, options)
    }

    /// The tokens of a pair of texts.
    pub fn tokenize_pair(
        &self,
        a: impl AsRef<[u8]>,
        b: impl AsRef<[u8]>,
        options: &TextOptions,
    ) -> Result<Vec<Token>, Error> {
        self.tokens(a.as_ref(), Some(b.as_ref()), options)
    }

    fn tokens(&self, a: &[u8], b: Option<&[u8]>, options: &TextOptions) -> Result<Vec<Token>, Error> {
        let params = sq_sys::sq_tokenize_params {
            size: size_of::<sq_sys::sq_tokenize_params>() as u32,
            max_len: options.max_len,
            truncate: options.truncate.into(),
            specials_as_text: options.specials_as_text.into(),
        };
        let (b, n_b) = b.map_or((null(), 0), |b| (b.as_ptr().cast::<c_char>(), b.len())); // a slice's pointer is not null
        let most = match options.max_len {
            0 => self.info.max_tokens,
            given => given as usize,
        };
        let mut room = most.min(16 + (a.len() + n_b) / 2); // longer texts are cut or refused
        loop {
            let (mut ids, mut kinds, mut sources) = (vec![0; room], vec![0; room], vec![0; room]);
            let mut spans = vec![0; 2 * room];
            let mut n = 0;
            let code = unsafe {
                sq_sys::sq_tokenize(
                    self.handle.as_ptr(),
                    a.as_ptr().cast(),
                    a.len(),
                    b,
                    n_b,
                    &params,
                    ids.as_mut_ptr(),
                    kinds.as_mut_ptr(),
                    spans.as_mut_ptr(),
                    sources.as_mut_ptr(),
                    room,
                    &mut n,
                )
            };
            if code == sq_sys::SQ_E_SPACE {
                room = n;
                continue;
            }
            check(code, || match code {
                sq_sys::SQ_E_LIMIT => format!("{}: {n} tokens", name_of(code)),
                _ => String::new(),
            })?;
            let token = |i: usize| Token {
                id: ids[i],
                kind: kinds[i],
                start: spans[2 * i] as usize,
                end: spans[2 * i + 1] as usize,
                source: sources[i],
            };
            return Ok((0..n).map(token).collect());
        }
    }
}

/// Refuses a library that is older than this crate's declarations.
fn check_abi() -> Result<(), Error> {
    let (have, need) = (unsafe { sq_sys::sq_abi_version() }, sq_sys::SQ_ABI_VERSION);
    if have < need {
        let text = format!("the library has ABI version {have}, and this program needs {need}");
        return Err(Error::new(Status::Version, text));
    }
    Ok(())
}

fn c_string(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::new(Status::Arg, "a name has a NUL in it"))
}

fn info_of(model: NonNull<sq_sys::sq_model>) -> Info {
    let mut raw = sq_sys::sq_model_info {
        size: size_of::<sq_sys::sq_model_info>() as u32,
        ..Default::default()
    };
    unsafe { sq_sys::sq_model_get_info(model.as_ptr(), &mut raw) };
    Info {
        layers: raw.n_layers as usize,
        width: raw.width as usize,
        embed_width: raw.embed_width as usize,
        vocab_size: raw.vocab_size as usize,
        max_tokens: raw.max_tokens as usize,
        max_positions: raw.max_positions as usize,
        head: match raw.head {
            sq_sys::SQ_HEAD_NONE => Head::None,
            sq_sys::SQ_HEAD_CLASSIFY => Head::Classify,
            sq_sys::SQ_HEAD_ANSWER => Head::Answer,
            sq_sys::SQ_HEAD_TAG => Head::Tag,
            other => Head::Other(other),
        },
        n_labels: raw.n_labels as usize,
        multi_label: raw.multi_label != 0,
    }
}

/// An answer head has logits without names: then this is empty.
fn labels_of(model: NonNull<sq_sys::sq_model>) -> Vec<String> {
    let mut n = 0;
    let name = |i| unsafe { sq_sys::sq_model_label(model.as_ptr(), i, &mut n) };
    (0..).map(name).take_while(|name| !name.is_null()).map(owned).collect()
}
