//! Every result beside what C gives, bit by bit, from many threads too. The folder SQ_TEST_DIR (tests/test-bindings.sh makes it) has
//! models, texts, and C's results, which tests/bindings/reference.c describes.

use std::mem::size_of;
use std::time::Duration;

use sq::*;

fn folder() -> String {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../build/bindings").to_string();
    std::env::var("SQ_TEST_DIR").unwrap_or_else(|_| beside())
}

fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("{}/{name}", folder()))
        .expect("`bash tests/test-bindings.sh --models-only` makes it");
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(str::to_string).collect()
}

fn texts() -> Vec<String> {
    lines("texts.txt")
}

fn bits(x: f32) -> String {
    format!("{:08x}", x.to_bits())
}

fn row(vector: &[f32]) -> String {
    vector.iter().map(|&x| bits(x)).collect::<Vec<_>>().join(" ")
}

fn rows(vectors: &[Vec<f32>]) -> Vec<String> {
    vectors.iter().map(|v| row(v)).collect()
}

fn model(name: &str) -> Model {
    Model::load(
        format!("{}/{name}", folder()),
        &LoadOptions {
            verify: true,
            ..Default::default()
        },
    )
    .unwrap()
}

fn one_thread() -> ContextOptions {
    ContextOptions {
        threads: 1,
        ..Default::default()
    }
}

#[test]
fn tokenize() {
    let m = model("embed.sq");
    for (text, expected) in texts().iter().zip(lines("tokens.txt")) {
        let tokens = m.tokenize(text, &Default::default()).unwrap();
        let got = tokens
            .iter()
            .map(|t| format!("{},{},{},{}", t.id, t.kind, t.start, t.end))
            .collect::<Vec<_>>();
        assert_eq!(got.join(" "), expected);
    }
    let pair = m.tokenize_pair("a", "", &Default::default()).unwrap();
    assert_eq!(pair.iter().map(|t| t.source).collect::<Vec<_>>(), [-1, 0, -1, -1]);
}

#[test]
fn embed() {
    let m = model("embed.sq");
    let mut c = m.context(&Default::default()).unwrap();
    assert_eq!(
        rows(&c.embed(&texts(), &Default::default()).unwrap()),
        lines("embed.txt")
    );
    assert!(c.embed::<&str>(&[], &Default::default()).unwrap().is_empty());
    let options = EmbedOptions {
        dimensions: 8,
        normalize: Normalize::No,
        pooling: Pooling::Mean,
        ..Default::default()
    };
    for (vector, expected) in c.embed(&texts(), &options).unwrap().iter().zip(lines("embed.txt")) {
        assert_eq!(row(vector), expected[..8 * 9 - 1]);
    }
    let unit = c
        .embed(
            &["a cat"],
            &EmbedOptions {
                normalize: Normalize::Yes,
                ..Default::default()
            },
        )
        .unwrap();
    assert!((unit[0].iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
}

#[test]
fn classify() {
    let m = model("classify.sq");
    assert_eq!(m.labels(), ["entailment", "neutral", "contradiction"]);
    assert_eq!(m.info().head, Head::Classify);
    let mut c = m.context(&Default::default()).unwrap();
    let all = texts();
    let classes = c.classify(&all, &Default::default()).unwrap();
    assert_eq!(
        classes.iter().map(|x| row(&x.scores)).collect::<Vec<_>>(),
        lines("scores.txt")
    );
    assert_eq!(
        classes.iter().map(|x| row(&x.logits)).collect::<Vec<_>>(),
        lines("logits.txt")
    );
    assert!(classes
        .iter()
        .all(|x| x.scores.iter().all(|&s| s <= x.scores[x.best()])));
    let pairs: Vec<_> = (0..all.len()).map(|i| (&all[i], &all[(i + 1) % all.len()])).collect();
    let classes = c
        .classify_pairs(
            &pairs,
            &TextOptions {
                truncate: true,
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!(
        classes.iter().map(|x| row(&x.logits)).collect::<Vec<_>>(),
        lines("pairs.txt")
    );
}

#[test]
fn rerank() {
    let m = model("score.sq");
    let ranked = m
        .context(&Default::default())
        .unwrap()
        .rerank(&texts()[0], &texts(), &Default::default())
        .unwrap();
    let got: Vec<_> = ranked
        .iter()
        .map(|r| format!("{} {}", r.document, bits(r.score)))
        .collect();
    assert_eq!(got, lines("rerank.txt"));
}

#[test]
fn answer() {
    let m = model("answer.sq");
    let mut c = m.context(&Default::default()).unwrap();
    let answers = c.answer(&texts()[0], texts().join(" "), &Default::default()).unwrap();
    let line = |a: &Answer| format!("{} {} {} {}", a.start, a.end, bits(a.score), bits(a.probability));
    assert_eq!(answers.iter().map(line).collect::<Vec<_>>(), lines("answer.txt"));
    assert!(c.answer("who", "", &Default::default()).unwrap().is_empty());
    let null = c
        .answer(
            "who",
            "a cat",
            &AnswerOptions {
                allow_null: true,
                ..Default::default()
            },
        )
        .unwrap();
    assert!(null.iter().any(|a| a.start == 0 && a.end == 0));
}

#[test]
fn tag() {
    let m = model("tag.sq");
    let mut c = m.context(&Default::default()).unwrap();
    let line = |e: &Entity| {
        format!(
            "{} {} {} {} {} {}",
            e.text,
            e.start,
            e.end,
            e.words,
            bits(e.score),
            e.label
        )
    };
    for (name, words) in [("tag.txt", false), ("words.txt", true)] {
        let entities = c
            .tag(
                &texts(),
                &TagOptions {
                    words,
                    ..Default::default()
                },
            )
            .unwrap();
        assert_eq!(entities.iter().map(line).collect::<Vec<_>>(), lines(name));
    }
    let many = c
        .tag(
            &["a ".repeat(60)],
            &TagOptions {
                words: true,
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!(many.len(), 60); // more than the first buffer holds
}

#[test]
fn odd_texts() {
    let m = model("embed.sq");
    let mut c = m.context(&Default::default()).unwrap();
    for (odd, same) in [
        (&b"a\xffcat"[..], "a\u{fffd}cat"),
        (b"\xf0\x9f\x90 dog", "\u{fffd} dog"), // cut short: one maximal subpart
        (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
    ] {
        let got = c.embed(&[odd, same.as_bytes()], &Default::default()).unwrap();
        assert_eq!(row(&got[0]), row(&got[1]));
    }
    c.embed(&["a\0cat"], &Default::default()).unwrap();
}

#[test]
fn long_texts() {
    let m = model("embed.sq");
    let mut c = m.context(&Default::default()).unwrap();
    let long = "dog ".repeat(5000);
    let error = c.embed(&["a", &long], &Default::default()).unwrap_err();
    assert_eq!(error.status, Status::Limit);
    assert!(error.to_string().contains("5002 tokens"), "{error}");
    assert!(m
        .tokenize(&long, &Default::default())
        .unwrap_err()
        .text
        .contains("5002"));
    let cut = EmbedOptions {
        text: TextOptions {
            truncate: true,
            ..Default::default()
        },
        ..Default::default()
    };
    let got = c.embed(&[long.clone(), "dog ".repeat(62)], &cut).unwrap();
    assert_eq!(row(&got[0]), row(&got[1]));
    assert_eq!(
        m.tokenize(
            &long,
            &TextOptions {
                max_len: NO_LIMIT,
                ..Default::default()
            }
        )
        .unwrap()
        .len(),
        5002
    );
}

#[test]
fn errors() {
    let error = Model::load("no/such/file.sq", &Default::default()).err().unwrap();
    assert_eq!(error.status, Status::Io);
    assert!(error.text.contains("no/such/file.sq"));
    let error = Model::load(format!("{}/texts.txt", folder()), &Default::default())
        .err()
        .unwrap();
    assert_eq!(error.status, Status::Format);
    let abacus = LoadOptions {
        isa: Some("abacus".into()),
        ..Default::default()
    };
    assert_eq!(
        Model::load(format!("{}/embed.sq", folder()), &abacus)
            .err()
            .unwrap()
            .status,
        Status::Cpu
    );
    assert_eq!(
        Model::load("a\0b", &Default::default()).err().unwrap().status,
        Status::Arg
    );
    let m = model("embed.sq");
    let error = m
        .context(&Default::default())
        .unwrap()
        .classify(&["a"], &Default::default())
        .unwrap_err();
    assert_eq!(error.status, Status::Task);
    assert!(error.text.contains("no head"));
    let huge = ContextOptions {
        max_tokens: u32::MAX,
        ..Default::default()
    };
    assert_eq!(m.context(&huge).err().unwrap().status, Status::Limit);
    assert!(!library_version().is_empty() && !m.isa().is_empty());
}

#[test]
fn pool_of_many_threads() {
    let m = model("embed.sq");
    let pool = Pool::new(&m, 2, &one_thread()).unwrap();
    let (all, expected) = (texts(), lines("embed.txt"));
    std::thread::scope(|threads| {
        for t in 0..16 {
            let (pool, all, expected) = (&pool, &all, &expected);
            threads.spawn(move || {
                for i in 0..50 {
                    let first = (t + i) % all.len();
                    let got = pool.lend().embed(&all[first..], &Default::default()).unwrap();
                    assert_eq!(rows(&got), expected[first..]);
                }
            });
        }
    });
    let (_one, two) = (pool.lend(), pool.lend());
    assert!(pool.try_lend().is_none());
    drop(two);
    assert!(pool.try_lend().is_some());
}

#[test]
fn contexts_move_between_threads() {
    let m = model("embed.sq");
    let mut c = m.context(&one_thread()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            assert_eq!(
                row(&c.embed(&texts()[..1], &Default::default()).unwrap()[0]),
                lines("embed.txt")[0]
            )
        });
    });
}

#[test]
fn cancel() {
    let m = model("embed.sq");
    let mut c = m.context(&one_thread()).unwrap();
    let canceller = c.canceller();
    std::thread::scope(|threads| {
        let running = threads.spawn(|| c.embed(&vec![""; 100_000], &Default::default())); // takes seconds
        while !running.is_finished() {
            canceller.cancel(); // before the call has reached the library it has no effect
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(running.join().unwrap().unwrap_err().status, Status::Cancel);
    });
    drop(c);
    canceller.cancel(); // of nothing
}

/// A struct's name, size, and the offset of each field.
macro_rules! layout {
    ($kind:ident: $($field:ident)*) => {{
        let offsets = [$(std::mem::offset_of!(sq_sys::$kind, $field).to_string()),*];
        format!("{} {} {}", stringify!($kind), size_of::<sq_sys::$kind>(), offsets.join(" "))
    }};
}

/// As the compiler of sq.h has them.
#[test]
fn layouts() {
    let got = [
        layout!(sq_model_params: size copy verify huge_pages isa),
        layout!(sq_model_info: size n_layers width n_heads ffn_width vocab_size n_types max_tokens max_positions pooling
            normalize quant head n_labels multi_label embed_width file_bytes n_params),
        layout!(sq_ctx_params: size n_threads max_tokens max_seqs cpus spin_us no_tuning tuning),
        layout!(sq_texts: size n_texts a a_starts b b_starts),
        layout!(sq_answer_span: start end score probability),
        layout!(sq_entity: text label start end score n_words),
    ];
    assert_eq!(got.to_vec(), lines("structs.txt"));
}

#[test]
fn a_panic_gives_the_context_back() {
    let m = model("embed.sq");
    let pool = Pool::new(&m, 1, &one_thread()).unwrap();
    std::thread::scope(|threads| {
        let panicking = threads.spawn(|| {
            let _lent = pool.lend();
            panic!("of the caller");
        });
        assert!(panicking.join().is_err());
    });
    assert_eq!(
        rows(&pool.lend().embed(&texts(), &Default::default()).unwrap()),
        lines("embed.txt")
    );
}
