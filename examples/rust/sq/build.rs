//! Tests and examples of this crate find the library where it was linked from.

fn main() {
    let folder = std::env::var("DEP_SQ_LIB_DIR").expect("sq-sys tells it");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
