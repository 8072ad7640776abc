//! The declarations of `sq.h`, under its names. `sq.h` documents them; crate `sq` makes them safe.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_float, c_void};

pub const SQ_ABI_VERSION: i32 = 1;

pub const SQ_OK: i32 = 0;
pub const SQ_E_ARG: i32 = -1;
pub const SQ_E_IO: i32 = -2;
pub const SQ_E_FORMAT: i32 = -3;
pub const SQ_E_VERSION: i32 = -4;
pub const SQ_E_CPU: i32 = -5;
pub const SQ_E_MEM: i32 = -6;
pub const SQ_E_SPACE: i32 = -7;
pub const SQ_E_LIMIT: i32 = -8;
pub const SQ_E_TASK: i32 = -9;
pub const SQ_E_INTERNAL: i32 = -10;
pub const SQ_E_BUSY: i32 = -11;
pub const SQ_E_NUMERIC: i32 = -12;
pub const SQ_E_CANCEL: i32 = -13;

pub const SQ_POOL_NONE: u32 = 0;
pub const SQ_POOL_MEAN: u32 = 1;
pub const SQ_POOL_CLS: u32 = 2;
pub const SQ_POOL_MAX: u32 = 3;

pub const SQ_HEAD_NONE: u32 = 0;
pub const SQ_HEAD_CLASSIFY: u32 = 1;
pub const SQ_HEAD_ANSWER: u32 = 2;
pub const SQ_HEAD_TAG: u32 = 3;

pub const SQ_NORMALIZE_MODEL: u32 = 0;
pub const SQ_NORMALIZE_YES: u32 = 1;
pub const SQ_NORMALIZE_NO: u32 = 2;

pub const SQ_TAG_WORDS: u32 = 1;

/// Opaque.
#[repr(C)]
pub struct sq_model {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct sq_ctx {
    _private: [u8; 0],
}

#[repr(C)]
pub struct sq_model_params {
    pub size: u32,
    pub copy: u32,
    pub verify: u32,
    pub huge_pages: u32,
    pub isa: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct sq_model_info {
    pub size: u32,
    pub n_layers: u32,
    pub width: u32,
    pub n_heads: u32,
    pub ffn_width: u32,
    pub vocab_size: u32,
    pub n_types: u32,
    pub max_tokens: u32,
    pub max_positions: u32,
    pub pooling: u32,
    pub normalize: u32,
    pub quant: u32,
    pub head: u32,
    pub n_labels: u32,
    pub multi_label: u32,
    pub embed_width: u32,
    pub file_bytes: usize,
    pub n_params: usize,
}

#[repr(C)]
pub struct sq_tokenize_params {
    pub size: u32,
    pub max_len: u32,
    pub truncate: u32,
    pub specials_as_text: u32,
}

#[repr(C)]
pub struct sq_ctx_params {
    pub size: u32,
    pub n_threads: u32,
    pub max_tokens: u32,
    pub max_seqs: u32,
    pub cpus: *const i32,
    pub spin_us: u32,
    pub no_tuning: u32,
    pub tuning: *const c_char,
}

#[repr(C)]
pub struct sq_texts {
    pub size: u32,
    pub n_texts: u32,
    pub a: *const c_char,
    pub a_starts: *const usize,
    pub b: *const c_char,
    pub b_starts: *const usize,
}

#[repr(C)]
pub struct sq_embed_params {
    pub size: u32,
    pub pooling: u32,
    pub normalize: u32,
    pub dimensions: u32,
    pub max_len: u32,
    pub truncate: u32,
    pub specials_as_text: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct sq_classify_params {
    pub size: u32,
    pub max_len: u32,
    pub truncate: u32,
    pub specials_as_text: u32,
}

#[repr(C)]
pub struct sq_answer_params {
    pub size: u32,
    pub window: u32,
    pub stride: u32,
    pub max_answer: u32,
    pub allow_null: u32,
    pub specials_as_text: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct sq_answer_span {
    pub start: usize,
    pub end: usize,
    pub score: c_float,
    pub probability: c_float,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct sq_entity {
    pub text: u32,
    pub label: u32,
    pub start: usize,
    pub end: usize,
    pub score: c_float,
    pub n_words: u32,
}

#[repr(C)]
pub struct sq_tag_params {
    pub size: u32,
    pub mode: u32,
    pub max_len: u32,
    pub truncate: u32,
    pub specials_as_text: u32,
    pub reserved: u32,
}

extern "C" {
    pub fn sq_abi_version() -> i32;
    pub fn sq_version_string() -> *const c_char;
    pub fn sq_status_string(status: i32) -> *const c_char;
    pub fn sq_isa_best() -> *const c_char;

    pub fn sq_model_load(
        path: *const c_char,
        params: *const sq_model_params,
        model: *mut *mut sq_model,
        err: *mut c_char,
        err_cap: usize,
    ) -> i32;
    pub fn sq_model_load_memory(
        data: *const c_void,
        n_bytes: usize,
        params: *const sq_model_params,
        model: *mut *mut sq_model,
        err: *mut c_char,
        err_cap: usize,
    ) -> i32;
    pub fn sq_model_free(model: *mut sq_model);
    pub fn sq_model_get_info(model: *const sq_model, info: *mut sq_model_info) -> i32;
    pub fn sq_model_label(model: *const sq_model, i: u32, n: *mut usize) -> *const c_char;
    pub fn sq_isa_string(model: *const sq_model) -> *const c_char;
    pub fn sq_tokenize(
        model: *const sq_model,
        a: *const c_char,
        n_a: usize,
        b: *const c_char,
        n_b: usize,
        params: *const sq_tokenize_params,
        ids: *mut i32,
        types: *mut i32,
        spans: *mut u32,
        sources: *mut i32,
        cap: usize,
        n: *mut usize,
    ) -> i32;

    pub fn sq_ctx_create(
        model: *mut sq_model,
        params: *const sq_ctx_params,
        ctx: *mut *mut sq_ctx,
        err: *mut c_char,
        err_cap: usize,
    ) -> i32;
    pub fn sq_ctx_free(ctx: *mut sq_ctx);
    pub fn sq_ctx_cancel(ctx: *mut sq_ctx);
    pub fn sq_ctx_error(ctx: *const sq_ctx) -> *const c_char;

    pub fn sq_embed(
        ctx: *mut sq_ctx,
        texts: *const sq_texts,
        params: *const sq_embed_params,
        out: *mut c_float,
        cap: usize,
        n: *mut usize,
    ) -> i32;
    pub fn sq_classify(
        ctx: *mut sq_ctx,
        texts: *const sq_texts,
        params: *const sq_classify_params,
        scores: *mut c_float,
        logits: *mut c_float,
        cap: usize,
        n: *mut usize,
    ) -> i32;
    pub fn sq_rerank(
        ctx: *mut sq_ctx,
        query: *const c_char,
        n_query: usize,
        documents: *const sq_texts,
        params: *const sq_classify_params,
        scores: *mut c_float,
        order: *mut u32,
        cap: usize,
        n: *mut usize,
    ) -> i32;
    pub fn sq_answer(
        ctx: *mut sq_ctx,
        question: *const c_char,
        n_question: usize,
        context: *const c_char,
        n_context: usize,
        params: *const sq_answer_params,
        spans: *mut sq_answer_span,
        cap: usize,
        n: *mut usize,
    ) -> i32;
    pub fn sq_tag(
        ctx: *mut sq_ctx,
        texts: *const sq_texts,
        params: *const sq_tag_params,
        entities: *mut sq_entity,
        cap: usize,
        n: *mut usize,
    ) -> i32;
}
