//! How alike are two texts? sq from Rust in one page.
//!
//!     cargo run --example hello MODEL.sq "A man is eating." "Someone has lunch."

use std::process::ExitCode;

fn cosine(x: &[f32], y: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let lengths = (dot(x, x) * dot(y, y)).sqrt();
    if lengths > 0.0 {
        dot(x, y) / lengths
    } else {
        0.0
    }
}

fn hello(path: &str, texts: &[String]) -> Result<f64, sq::Error> {
    let model = sq::Model::load(path, &Default::default())?;
    let vectors = model.context(&Default::default())?.embed(texts, &Default::default())?;
    Ok(cosine(&vectors[0], &vectors[1]))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() != 3 {
        eprintln!("usage: hello MODEL.sq TEXT TEXT");
        return ExitCode::from(2);
    }
    match hello(&arguments[0], &arguments[1..]) {
        Ok(similarity) => println!("cosine similarity {similarity:.4}"),
        Err(error) => {
            eprintln!("hello: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
