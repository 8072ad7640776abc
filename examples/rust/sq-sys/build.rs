//! Links libsq.so from the folder SQ_LIB_DIR, or else from the top folder of sq's sources, where `make` leaves it.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-env-changed=SQ_LIB_DIR");
    let given = std::env::var_os("SQ_LIB_DIR").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    let folder = folder.canonicalize().expect("SQ_LIB_DIR must name a folder");
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=sq");
    println!("cargo:lib_dir={}", folder.display()); // DEP_SQ_LIB_DIR of the crates that depend on this one
}
