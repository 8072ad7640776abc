//! What a call from Rust takes longer than from C, for a text of 16 tokens on one thread.
//!
//!     cargo run --release --example overhead FOLDER MODEL.sq [ROUNDS]
//!
//! FOLDER is what tests/test-bindings.sh makes: its program `call` (tests/bindings/call.c) is C's side, in a process of
//! its own. Both run in alternation, a block of calls each. What Rust adds is the median, and the quartiles, of the rounds'
//! differences of the blocks' medians; and the difference of the fastest calls of all, which other work on the machine
//! disturbs least.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const TEXT: &str = "the dog and the cat sleep in the old house by the a a"; // 16 tokens in the tests' and in English vocabularies
const BLOCK_NS: f64 = 3e7;

fn quantile(mut x: Vec<f64>, q: f64) -> f64 {
    x.sort_by(f64::total_cmp);
    x[(q * (x.len() - 1) as f64) as usize]
}

/// Nanoseconds of a block's calls.
#[derive(Clone, Copy)]
struct Times {
    median: f64,
    fastest: f64,
}

fn block(context: &mut sq::Context, n: usize) -> Times {
    let time = |_| {
        let start = Instant::now();
        context.embed(&[TEXT], &Default::default()).expect("the text fits");
        start.elapsed().as_nanos() as f64
    };
    let ns: Vec<f64> = (0..n).map(time).collect();
    Times {
        fastest: quantile(ns.clone(), 0.0),
        median: quantile(ns, 0.5),
    }
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

    fn block(&mut self, n: usize) -> Times {
        let mut line = String::new();
        writeln!(self.questions, "{n}").expect("call listens");
        self.answers.read_line(&mut line).expect("call answers");
        let mut numbers = line.split_whitespace().map(|x| x.parse().expect("a number"));
        let mut next = || numbers.next().expect("two numbers");
        Times {
            median: next(),
            fastest: next(),
        }
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
    let n = (BLOCK_NS / in_c.block(50).median).max(10.0) as usize;
    block(&mut context, n);
    let pairs: Vec<(Times, Times)> = (0..rounds).map(|_| (in_c.block(n), block(&mut context, n))).collect();
    in_c.end();
    let us = |of: &dyn Fn(&(Times, Times)) -> f64, q| quantile(pairs.iter().map(of).collect(), q) / 1e3;
    let c = us(&|(c, _)| c.median, 0.5);
    let more = |q| us(&|(c, rust)| rust.median - c.median, q);
    let (low, median, high) = (more(0.25), more(0.5), more(0.75));
    let percent = 100.0 * median / c;
    println!("C {c:.2} us; more from Rust: {median:.2} us ({low:.2} to {high:.2}), {percent:.2} %");
    let fastest_c = us(&|(c, _)| c.fastest, 0.0);
    let fastest_more = us(&|(_, rust)| rust.fastest, 0.0) - fastest_c;
    println!("fastest: C {fastest_c:.2} us; more from Rust: {fastest_more:.2} us");
    Ok(())
}
