//! What a call from Rust takes longer than from C, for a text of 16 tokens on one thread.
//!
//!     cargo run --release --example overhead FOLDER MODEL.sq [ROUNDS]
//!
//! FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of
//! its own. Both run in alternation, a block of calls each; medians of the blocks' medians, and of their differences.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const TEXT: &str = "the dog and the cat sleep in the old house by the a a"; // 16 tokens in the tests' and in English vocabularies
const BLOCK_NS: f64 = 3e7;

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

/// Median nanoseconds of n calls.
fn block(context: &mut sq::Context, n: usize) -> f64 {
    let time = |_| {
        let start = Instant::now();
        context.embed(&[TEXT], &Default::default()).expect("the text fits");
        start.elapsed().as_nanos() as f64
    };
    median((0..n).map(time).collect())
}

/// tests/bindings/call.c at work.
struct CallsInC {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl CallsInC {
    fn start(folder: &str, model: &str) -> CallsInC {
        let mut command = Command::new(format!("{folder}/call"));
        let command = command.args([model, TEXT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("FOLDER has the program call");
        let questions = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        CallsInC {
            process,
            questions,
            answers,
        }
    }

    fn block(&mut self, n: usize) -> f64 {
        let mut line = String::new();
        writeln!(self.questions, "{n}").expect("call listens");
        self.answers.read_line(&mut line).expect("call answers");
        line.trim().parse().expect("a number")
    }

    fn end(mut self) {
        drop(self.questions);
        let _ = self.process.wait();
    }
}

fn main() -> Result<(), sq::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, path, rest @ ..] = &arguments[..] else {
        panic!("usage: overhead FOLDER MODEL.sq [ROUNDS]")
    };
    let rounds = rest.first().map_or(100, |n| n.parse().expect("a number of rounds"));
    let model = sq::Model::load(path, &Default::default())?;
    assert_eq!(model.tokenize(TEXT, &Default::default())?.len(), 16);
    let mut context = model.context(&sq::ContextOptions {
        threads: 1,
        no_tuning: true,
        ..Default::default()
    })?;
    let mut in_c = CallsInC::start(folder, path);
    let n = (BLOCK_NS / in_c.block(50)).max(10.0) as usize;
    block(&mut context, n);
    let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (in_c.block(n), block(&mut context, n))).collect();
    in_c.end();
    let c = median(pairs.iter().map(|(c, _)| *c).collect());
    let more = median(pairs.iter().map(|(c, rust)| rust - c).collect());
    let (c_us, more_us) = (c / 1e3, more / 1e3);
    let percent = 100.0 * more / c;
    println!(
        "C {c_us:.2} us, Rust {:.2} us: overhead {more_us:.2} us, {percent:.2} %",
        c_us + more_us
    );
    Ok(())
}
