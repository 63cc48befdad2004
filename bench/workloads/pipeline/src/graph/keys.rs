// SPDX-License-Identifier: GPL-2.0-only
//! The keys of a graph as they stand in a file, and a stage's values out of them, each in range. Pure.

use std::collections::BTreeMap;

use busy::Sync;
use serde::Deserialize;
use toml::Spanned;

use super::curve::Curve;
use super::document::Problem;
use super::model::{
    Arrive, Batch, By, Clock, Cpu, Every, Gaps, Gather, Gpu, Grow, HandOver, Http, Join, Message,
    Phase, Route, Stage, Window,
};
use super::number::Table;
use super::order::Draft;

/// The kernel keeps 15 bytes of a thread's name; three are the number's.
const MAX_NAME: usize = 12;
const MAX_THREADS: i64 = 999;
const MAX_RATE: f64 = 1e6;
const MAX_COUNT: i64 = 1_000_000_000;
const DAY_MS: f64 = 86_400_000.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub description: String,
    #[serde(default)]
    pub sync: Sync,
    pub stage: BTreeMap<String, Spanned<Keys>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    from: Option<Vec<Spanned<String>>>,
    arrive: Option<Spanned<ArriveKeys>>,
    threads: Option<Spanned<i64>>,
    grow: Option<Spanned<GrowKeys>>,
    queue: Option<Spanned<i64>>,
    route: Option<Spanned<Route>>,
    join: Option<Spanned<JoinKeys>>,
    batch: Option<Spanned<BatchKeys>>,
    cpu: Option<Spanned<CpuKeys>>,
    gpu: Option<Spanned<GpuKeys>>,
    http: Option<Spanned<HttpKeys>>,
    window: Option<Spanned<WindowKeys>>,
    emit: Option<Spanned<f64>>,
    keys: Option<Spanned<i64>>,
    message: Option<Spanned<MessageKeys>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArriveKeys {
    #[serde(rename = "loop")]
    kind: Loop,
    rate: Option<Spanned<f64>>,
    phases: Option<Vec<Spanned<PhaseKeys>>>,
    #[serde(default)]
    gaps: Gaps,
    clients: Option<Spanned<i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Loop {
    Open,
    Closed,
    Saturate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseKeys {
    items: Option<Spanned<i64>>,
    rate: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrowKeys {
    at_item: Option<Spanned<i64>>,
    threads: Option<Spanned<i64>>,
    load_ms: Option<Spanned<f64>>,
    #[serde(default)]
    preload: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinKeys {
    by: Option<Spanned<By>>,
    pending: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchKeys {
    max: Option<Spanned<i64>>,
    #[serde(default)]
    gather: Gather,
    wait_ms: Option<Spanned<f64>>,
    slo_ms: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuKeys {
    us: Option<Spanned<f64>>,
    #[serde(default)]
    clock: Clock,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuKeys {
    batch: Spanned<Vec<i64>>,
    ms: Spanned<Vec<f64>>,
    launches: Option<Spanned<i64>>,
    gap_us: Option<Spanned<f64>>,
    devices: Option<Vec<Spanned<i64>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpKeys {
    url: Spanned<String>,
    model: Option<String>,
    prompt_tokens: Option<Spanned<i64>>,
    max_tokens: Option<Spanned<i64>>,
    timeout_s: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowKeys {
    by: Option<Spanned<By>>,
    every_items: Option<Spanned<i64>>,
    every_ms: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageKeys {
    bytes: Spanned<Vec<i64>>,
    #[serde(default)]
    hand_over: HandOver,
}

/// A stage by itself; whom it takes from is still to be found.
pub fn draft(name: &str, keys: &Spanned<Keys>) -> Result<Draft, Problem> {
    let table = Table::new(format!("stage.{name}"), keys.span());
    let keys = keys.get_ref();
    let letters = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(letters) {
        let message = format!(
            "expected 1 to {MAX_NAME} letters, digits, - and _, got {name:?}: threads are named after the stage"
        );
        return Err(table.problem("", message));
    }
    let threads = table.count("threads", keys.threads.as_ref(), 1, 1..=MAX_THREADS)?;
    let gpu = section(&table, "gpu", keys.gpu.as_ref(), gpu)?;
    let http = section(&table, "http", keys.http.as_ref(), http)?;
    let batch = batch(&table, keys.batch.as_ref(), gpu.as_ref())?;
    if http.is_some() && batch.max > 1 {
        let message = "expected a stage of single items: a request is one item; leave batch out";
        return Err(table.problem("batch", message));
    }
    let join = section(&table, "join", keys.join.as_ref(), join)?;
    let window = section(&table, "window", keys.window.as_ref(), window)?;
    let stage = Stage {
        name: name.to_owned(),
        threads,
        grow: section(&table, "grow", keys.grow.as_ref(), grow)?,
        arrive: section(&table, "arrive", keys.arrive.as_ref(), arrive)?,
        queue: table.count("queue", keys.queue.as_ref(), 64, 1..=1_000_000)?,
        route: default_route(join, window),
        join,
        batch,
        cpu: section(&table, "cpu", keys.cpu.as_ref(), cpu)?,
        gpu,
        http,
        window,
        emit: table.number("emit", keys.emit.as_ref(), Some(1.0), 0.0..=1000.0)?,
        keys: keys
            .keys
            .as_ref()
            .map(|value| table.count("keys", Some(value), 1, 1..=MAX_COUNT))
            .transpose()?
            .map(|keys| keys as u64),
        message: section(&table, "message", keys.message.as_ref(), message)?,
    };
    Ok(Draft {
        stage,
        from: keys.from.clone().unwrap_or_default(),
        route: keys.route.clone(),
        table,
    })
}

/// A table below the stage's, if there is one.
fn section<K, V>(
    table: &Table,
    key: &str,
    keys: Option<&Spanned<K>>,
    read: impl Fn(&Table, &K) -> Result<V, Problem>,
) -> Result<Option<V>, Problem> {
    keys.map(|keys| read(&table.below(key, keys), keys.get_ref()))
        .transpose()
}

fn default_route(join: Option<Join>, window: Option<Window>) -> Route {
    match join.map(|join| join.by).or(window.map(|window| window.by)) {
        Some(By::Key) => Route::Key,
        Some(By::Request) => Route::Request,
        Some(By::All) | None => Route::Any,
    }
}

fn arrive(table: &Table, keys: &ArriveKeys) -> Result<Arrive, Problem> {
    let unused = |key: &str| {
        table.problem(
            key,
            "expected none with this loop: leave it out or take another loop",
        )
    };
    if keys.kind != Loop::Open {
        if keys.rate.is_some() || keys.phases.is_some() {
            return Err(unused("rate"));
        }
    } else if keys.clients.is_some() {
        return Err(unused("clients"));
    }
    match keys.kind {
        Loop::Saturate if keys.clients.is_some() => Err(unused("clients")),
        Loop::Saturate => Ok(Arrive::Saturate),
        Loop::Closed => Ok(Arrive::Closed {
            clients: table.count("clients", keys.clients.as_ref(), 1, 1..=100_000)?,
        }),
        Loop::Open => Ok(Arrive::Open {
            phases: phases(table, keys)?,
            gaps: keys.gaps,
        }),
    }
}

fn phases(table: &Table, keys: &ArriveKeys) -> Result<Vec<Phase>, Problem> {
    let Some(list) = &keys.phases else {
        let rate = table.number("rate", keys.rate.as_ref(), None, 1e-3..=MAX_RATE)?;
        return Ok(vec![Phase { items: None, rate }]);
    };
    if keys.rate.is_some() || list.is_empty() {
        let message = "expected either a rate or at least one phase: leave one of the two out";
        return Err(table.problem("phases", message));
    }
    let mut phases = Vec::with_capacity(list.len());
    for (number, phase) in list.iter().enumerate() {
        let below = table.below("phases", phase);
        let PhaseKeys { items, rate } = phase.get_ref();
        let rate = below.number("rate", rate.as_ref(), None, 1e-3..=MAX_RATE)?;
        let is_last = number + 1 == list.len();
        if items.is_none() != is_last {
            let message = "expected a number in every phase but the last, which does not end";
            return Err(below.problem("items", message));
        }
        let items = below.count("items", items.as_ref(), 0, 1..=MAX_COUNT)?;
        let items = (!is_last).then_some(items as u64);
        phases.push(Phase { items, rate });
    }
    Ok(phases)
}

fn grow(table: &Table, keys: &GrowKeys) -> Result<Grow, Problem> {
    Ok(Grow {
        at_item: table.count("at_item", keys.at_item.as_ref(), 0, 0..=MAX_COUNT)? as u64,
        threads: table.count("threads", keys.threads.as_ref(), 1, 1..=MAX_THREADS)?,
        load_ms: table.number("load_ms", keys.load_ms.as_ref(), Some(0.0), 0.0..=DAY_MS)?,
        preload: keys.preload,
    })
}

fn join(table: &Table, keys: &JoinKeys) -> Result<Join, Problem> {
    let by = by(table, keys.by.as_ref(), &[By::Request, By::Key])?;
    Ok(Join {
        by,
        pending: table.count("pending", keys.pending.as_ref(), 1024, 1..=MAX_COUNT)?,
    })
}

fn window(table: &Table, keys: &WindowKeys) -> Result<Window, Problem> {
    let by = by(table, keys.by.as_ref(), &[By::Key, By::All])?;
    let every = match (&keys.every_items, &keys.every_ms) {
        (Some(items), None) => {
            Every::Items(table.count("every_items", Some(items), 1, 1..=MAX_COUNT)? as u64)
        }
        (None, Some(ms)) => Every::Ms(table.number("every_ms", Some(ms), None, 1.0..=DAY_MS)?),
        _ => {
            let message = "expected every_items or every_ms, one of the two";
            return Err(table.problem("", message));
        }
    };
    Ok(Window { by, every })
}

fn by(table: &Table, by: Option<&Spanned<By>>, allowed: &[By]) -> Result<By, Problem> {
    let name = |by: &By| match by {
        By::Key => "\"key\" (items with the same key)",
        By::Request => "\"request\" (copies of one request)",
        By::All => "\"all\" (every item)",
    };
    let names: Vec<&str> = allowed.iter().map(name).collect();
    let expected = format!("expected {}", names.join(" or "));
    match by {
        Some(by) if allowed.contains(by.get_ref()) => Ok(*by.get_ref()),
        Some(other) => Err(table.problem_at(
            other.span(),
            "by",
            format!(
                "{expected}, got {}: take one of them",
                name(other.get_ref())
            ),
        )),
        None => Err(table.problem(
            "by",
            format!("{expected}, got nothing: add the key, for example by = \"key\""),
        )),
    }
}

fn batch(
    table: &Table,
    keys: Option<&Spanned<BatchKeys>>,
    gpu: Option<&Gpu>,
) -> Result<Batch, Problem> {
    let Some(spanned) = keys else {
        return Ok(Batch {
            max: 1,
            gather: Gather::default(),
            wait_ms: 0.0,
        });
    };
    let (table, keys) = (table.below("batch", spanned), spanned.get_ref());
    let max = table.count("max", keys.max.as_ref(), 1, 1..=100_000)?;
    let max = match (&keys.slo_ms, gpu) {
        (None, _) => max,
        (Some(slo), Some(gpu)) => {
            let slo = table.number("slo_ms", Some(slo), None, 1e-3..=DAY_MS)?;
            gpu.service.largest_within(slo, max)
        }
        (Some(_), None) => {
            let message = "expected a stage with gpu, whose times cap the batch: leave it out";
            return Err(table.problem("slo_ms", message));
        }
    };
    Ok(Batch {
        max,
        gather: keys.gather,
        wait_ms: table.number("wait_ms", keys.wait_ms.as_ref(), Some(100.0), 0.0..=DAY_MS)?,
    })
}

fn cpu(table: &Table, keys: &CpuKeys) -> Result<Cpu, Problem> {
    Ok(Cpu {
        us: table.number("us", keys.us.as_ref(), None, 0.0..=6e7)?,
        clock: keys.clock,
    })
}

fn gpu(table: &Table, keys: &GpuKeys) -> Result<Gpu, Problem> {
    let service = Curve::new(keys.batch.get_ref(), keys.ms.get_ref()).map_err(|expected| {
        table.problem_at(keys.ms.span(), "ms", format!("expected {expected}"))
    })?;
    let mut devices = Vec::new();
    for device in keys.devices.iter().flatten() {
        devices.push(table.count("devices", Some(device), 0, 0..=255)? as u32);
    }
    if devices.is_empty() {
        devices.push(0);
    }
    Ok(Gpu {
        service,
        launches: table.count("launches", keys.launches.as_ref(), 1, 1..=100_000)? as u32,
        gap_us: table.number("gap_us", keys.gap_us.as_ref(), Some(0.0), 0.0..=1e6)?,
        devices,
    })
}

fn http(table: &Table, keys: &HttpKeys) -> Result<Http, Problem> {
    let url = keys.url.get_ref().trim_end_matches('/');
    if !url.starts_with("http://") {
        let message = format!("expected http://HOST:PORT, got {url:?}: https is not spoken");
        return Err(table.problem_at(keys.url.span(), "url", message));
    }
    Ok(Http {
        url: url.to_owned(),
        model: keys.model.clone(),
        prompt_tokens: table.count(
            "prompt_tokens",
            keys.prompt_tokens.as_ref(),
            64,
            1..=100_000,
        )?,
        max_tokens: table.count("max_tokens", keys.max_tokens.as_ref(), 16, 1..=100_000)?,
        timeout_s: table.number(
            "timeout_s",
            keys.timeout_s.as_ref(),
            Some(30.0),
            0.1..=3600.0,
        )?,
    })
}

fn message(table: &Table, keys: &MessageKeys) -> Result<Message, Problem> {
    let bytes = match keys.bytes.get_ref()[..] {
        [all] => (all, all),
        [least, most] if least <= most => (least, most),
        _ => (-1, -1),
    };
    let whole = |bytes: i64| {
        usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= 1 << 30)
    };
    match (whole(bytes.0), whole(bytes.1)) {
        (Some(least), Some(most)) => Ok(Message {
            bytes: (least, most),
            hand_over: keys.hand_over,
        }),
        _ => Err(table.problem_at(
            keys.bytes.span(),
            "bytes",
            "expected [SIZE] or [LEAST, MOST], in bytes, at most 2^30: for example [10_000_000, 20_000_000]",
        )),
    }
}
