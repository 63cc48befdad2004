// SPDX-License-Identifier: GPL-2.0-only
//! What a graph is read as, and what is said of one that is wrong.

use super::*;

const LINE: &str = r#"description = "a line"
[stage.source]
arrive = { loop = "open", rate = 10 }
[stage.work]
from = ["source"]
cpu = { us = 500 }
[stage.sink]
from = ["work"]
"#;

fn error(text: &str) -> String {
    read("g.toml", text, &[]).unwrap_err().to_string()
}

fn with(lines: &str) -> String {
    format!("{LINE}{lines}")
}

#[test]
fn stages_come_after_what_they_take_from() {
    let text = "description = \"d\"\n[stage.a]\nfrom = [\"b\", \"c\"]\njoin = { by = \"request\" }\nthreads = 2\n\
                [stage.b]\nfrom = [\"z\"]\n[stage.c]\nfrom = [\"z\"]\n[stage.z]\narrive = { loop = \"saturate\" }\n";
    let graph = read("g.toml", text, &[]).unwrap();
    let names: Vec<&str> = graph
        .stages
        .iter()
        .map(|stage| stage.name.as_str())
        .collect();
    assert_eq!(names, ["z", "b", "c", "a"]);
    let edges: Vec<_> = graph
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to))
        .collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 3), (2, 3)]);
    assert_eq!(
        graph.stages[3].route,
        Route::Request,
        "as the join needs it"
    );
    assert_eq!(graph.stages[3].thread_name(1), "a1");
}

#[test]
fn a_stage_that_is_not_there_is_named_with_those_that_are() {
    assert_eq!(
        error(&with("[stage.x]\nfrom = [\"wrok\"]\n")),
        "g.toml:10: stage.x.from: expected the name of a stage, got \"wrok\": there is sink, source, work, x"
    );
}

#[test]
fn a_cycle_is_shown_as_the_way_that_items_would_go() {
    let text = LINE.replace("from = [\"source\"]", "from = [\"source\", \"sink\"]");
    assert_eq!(
        error(&text),
        "g.toml:5: stage.work.from: expected no way back to where items come from, got sink -> work -> sink: \
         take one of these out"
    );
    assert!(error(&with("[stage.self]\nfrom = [\"self\"]\n")).contains("got self -> self"));
}

#[test]
fn a_queue_of_nothing_is_refused() {
    assert_eq!(
        error(&with("queue = 0\n")),
        "g.toml:9: stage.sink.queue: expected 1 to 1000000, got 0: leave it out for the default"
    );
}

#[test]
fn a_join_says_what_must_agree() {
    let text = with("[stage.both]\nfrom = [\"work\", \"source\"]\njoin = {}\n");
    assert_eq!(
        error(&text),
        "g.toml:11: stage.both.join.by: expected \"request\" (copies of one request) or \"key\" \
         (items with the same key), got nothing: add the key, for example by = \"key\""
    );
    let one = error(&with("join = { by = \"key\" }\n"));
    assert!(
        one.contains("stage.sink.from: expected at least two stages to join, got 1"),
        "{one}"
    );
}

#[test]
fn what_belongs_together_is_not_parted() {
    let text = "[stage.both]\nfrom = [\"work\", \"source\"]\njoin = { by = \"request\" }\nthreads = 2\nroute = \"turn\"\n";
    let found = error(&with(text));
    assert!(
        found.starts_with("g.toml:13: stage.both.route: expected \"request\""),
        "{found}"
    );
    let alone = text.replace("threads = 2", "threads = 1");
    assert!(
        read("g.toml", &with(&alone), &[]).is_ok(),
        "one thread has it all"
    );
}

#[test]
fn unknown_keys_and_words_are_refused_where_they_stand() {
    let found = error(&with("quene = 5\n"));
    assert!(
        found.starts_with("g.toml:9: quene: unknown field `quene`"),
        "{found}"
    );
    let found = error(&LINE.replace("\"open\"", "\"opne\""));
    assert!(
        found.starts_with("g.toml:3: arrive: unknown variant `opne`"),
        "{found}"
    );
}

#[test]
fn sources_have_arrivals_and_nobody_else() {
    let found = error(&with("[stage.lost]\nqueue = 5\n"));
    assert!(
        found.contains("stage.lost.from: expected the names of stages"),
        "{found}"
    );
    let found = error(&with("arrive = { loop = \"saturate\" }\n"));
    assert!(
        found.contains("stage.sink.arrive: expected none"),
        "{found}"
    );
    let found = error("description = \"d\"\n[stage]\n");
    assert!(
        found.contains("stage: expected at least one [stage.NAME]"),
        "{found}"
    );
}

#[test]
fn a_loop_has_its_own_keys() {
    let found = |arrive: &str| error(&LINE.replace("loop = \"open\", rate = 10", arrive));
    assert!(
        found("loop = \"closed\", rate = 5").contains("stage.source.arrive.rate: expected none")
    );
    assert!(found("loop = \"saturate\", clients = 5").contains("arrive.clients: expected none"));
    assert!(
        found("loop = \"open\"")
            .contains("arrive.rate: expected a number, 0.001 to 1000000, got nothing")
    );
    let surge = "loop = \"open\", phases = [{ items = 20, rate = 70 }, { rate = 130 }]";
    let text = LINE.replace("loop = \"open\", rate = 10", surge);
    let graph = read("g.toml", &text, &[]).unwrap();
    let Some(Arrive::Open { phases, .. }) = &graph.stages[0].arrive else {
        panic!("{:?}", graph.stages[0])
    };
    assert_eq!((phases[0].items, phases[1].rate), (Some(20), 130.0));
    let endless = surge.replace("items = 20, ", "");
    assert!(
        found(&endless)
            .contains("arrive.phases.items: expected a number in every phase but the last")
    );
}

#[test]
fn an_objective_caps_the_batch() {
    let gpu =
        "gpu = { batch = [1, 4, 16], ms = [10, 16, 40] }\nbatch = { max = 64, slo_ms = 28 }\n";
    let graph = read("g.toml", &with(gpu), &[]).unwrap();
    assert_eq!(graph.stages[2].batch.max, 10);
    let found = error(&with("batch = { max = 64, slo_ms = 28 }\n"));
    assert!(
        found.contains("stage.sink.batch.slo_ms: expected a stage with gpu"),
        "{found}"
    );
}

#[test]
fn a_parameter_is_changed_from_outside() {
    let set = |change: &str| read("g.toml", LINE, &[change.to_owned()]);
    let graph = set("stage.work.cpu.us=2000").unwrap();
    assert_eq!(graph.stages[1].cpu.unwrap().us, 2000.0);
    let surge =
        "stage.source.arrive={ loop = \"open\", phases = [{ items = 5, rate = 1 }, { rate = 9 }] }";
    assert!(set(surge).is_ok(), "{:?}", set(surge));
    let found = set("stage.work.queue=0").unwrap_err().to_string();
    assert!(
        found.starts_with("--set stage.work.queue=0: stage.work.queue: expected 1 to"),
        "{found}"
    );
}

#[test]
fn numbers_are_kept_in_range() {
    for (lines, key) in [
        ("threads = 0\n", "stage.sink.threads"),
        ("emit = -1\n", "stage.sink.emit"),
        ("message = { bytes = [5, 2] }\n", "stage.sink.message.bytes"),
        ("cpu = {}\n", "stage.sink.cpu.us"),
        ("gpu = { batch = [1], ms = [] }\n", "stage.sink.gpu.ms"),
        ("http = { url = \"https://x\" }\n", "stage.sink.http.url"),
        ("window = { by = \"all\" }\n", "stage.sink.window"),
        (
            "window = { by = \"request\", every_ms = 5 }\n",
            "stage.sink.window.by",
        ),
        ("grow = { at_item = 5 }\n", "stage.sink.route"),
        (
            "[stage.a-name-too-long]\nfrom = [\"work\"]\n",
            "stage.a-name-too-long",
        ),
    ] {
        let found = error(&with(lines));
        assert!(
            found.contains(&format!(" {key}: expected ")),
            "{lines}: {found}"
        );
    }
}
