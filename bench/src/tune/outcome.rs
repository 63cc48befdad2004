// SPDX-License-Identifier: GPL-2.0-only
//! What a tuning leaves: the policy with its evidence in comments, the report, and the reasons in a few lines. Decides
//! nothing.

use anyhow::Result;

use super::candidate::{Candidate, DEFAULT};
use super::decide::{Finding, Judgement, MAY_LOSE, Shown, Verdict, choose, judge};
use super::folder::{State, TuneDir};
use super::goal::Prefer;
use super::steps::PROOF;
use crate::record::neighbour::Neighbour;
use crate::replace::put;
use crate::report::format::{percent, times};
use crate::report::look::STYLE;
use crate::report::table::{Align, Table, escape};
use crate::report::{Report, scatter};
use crate::study::{Figure, Row};
use crate::words::wrap;
use gpuaware_stats::{Difference, SPEED_MARGIN, TAIL_MARGIN};

const COLUMNS: usize = 116;
const EXPLAINED: usize = 10;

/// All that was found out.
pub struct Outcome<'a> {
    state: &'a State,
    proof: &'a Report,
    judgements: Vec<Judgement>,
    chosen: Option<&'a Candidate>,
}

impl<'a> Outcome<'a> {
    pub fn new(state: &'a State, finalists: &'a [Candidate], proof: &'a Report) -> Self {
        let ranking: Vec<&str> = finalists.iter().map(|one| one.name.as_str()).collect();
        let judgements = judge(&proof.summary, &ranking, state.prefer);
        let chosen = choose(&judgements, &ranking);
        let chosen = chosen.and_then(|j| finalists.iter().find(|one| one.name == j.candidate));
        Self {
            state,
            proof,
            judgements,
            chosen,
        }
    }

    /// In one sentence; of a simulation, in two.
    pub fn verdict(&self) -> String {
        let found = self.finding();
        match &self.state.machine {
            None => found,
            Some(_) => format!(
                "{found} That is so in the simulator: verify it on the host, with tune --on host --candidate."
            ),
        }
    }

    fn finding(&self) -> String {
        let rounds = self.proof.plan.matrix.rounds;
        if let Some(candidate) = self.chosen {
            return format!(
                "{} is better than the default on {rounds} held-out rounds.",
                candidate.name
            );
        }
        let all = |verdict| self.judgements.iter().all(|j| j.verdict == verdict);
        if all(Verdict::TooFewRounds) || all(Verdict::Failed) {
            return "Nothing could be judged: the default stays.".to_owned();
        }
        format!(
            "The default is as good: nothing that was verified is shown to be more than 2 % better on {rounds} held-out rounds without being worse."
        )
    }

    /// Why, in ten lines at most.
    pub fn explain(&self) -> Vec<String> {
        let goal = match self.state.prefer {
            None => "nothing may become worse".to_owned(),
            Some(Prefer::Isolation) => format!(
                "work may lose up to {:.0} % for speed or p99",
                MAY_LOSE * 100.0
            ),
            Some(Prefer::Work) => format!(
                "speed and p99 may lose up to {:.0} % for work",
                MAY_LOSE * 100.0
            ),
        };
        let mut lines = vec![
            format!("{}: {goal}", self.setting()),
            self.state.seen.words(),
        ];
        for judgement in &self.judgements {
            lines.push(format!(
                "{}: {}",
                judgement.candidate,
                words(judgement.verdict)
            ));
            let telling = |finding: &&Finding| finding.shown != Shown::Nothing;
            let found: Vec<String> = judgement
                .findings
                .iter()
                .filter(telling)
                .map(sentence)
                .collect();
            lines.push(match found.as_slice() {
                [] => format!("{}: {}", judgement.candidate, nothing_shown(judgement)),
                found => found.join("; "),
            });
        }
        let tried = self.state.candidates.len();
        lines.push(format!(
            "{tried} candidates were tried, {} verified; {} were not tried",
            self.judgements.len(),
            self.state.dropped.len()
        ));
        lines.truncate(EXPLAINED);
        lines
    }

    fn setting(&self) -> String {
        let noisy = self
            .state
            .matrix
            .neighbours
            .iter()
            .filter(|one| **one != Neighbour::None);
        let noisy: Vec<&str> = noisy.map(|one| one.name()).collect();
        let machine = self.state.machine.as_ref();
        let machine = machine.map_or(String::new(), |name| format!(" of {name}, simulated"));
        format!(
            "{} beside {} on {} CPUs{machine}",
            self.state.workload,
            noisy.join(", "),
            self.state.seen.cpus
        )
    }

    pub fn write(&self, dir: &TuneDir) -> Result<()> {
        put(&dir.root.join("policy.toml"), self.policy())?;
        put(&dir.root.join("report.md"), self.markdown())?;
        put(&dir.root.join("report.html"), self.html())
    }

    /// The policy that is recommended, everything that speaks for it in comments above.
    fn policy(&self) -> String {
        let today = time::OffsetDateTime::now_utc().date();
        let mut text = comment(&format!(
            "Found by gpuaware-bench tune on {today}: {}.",
            self.setting()
        ));
        text += &comment(&self.verdict());
        for judgement in &self.judgements {
            text += &comment(&format!(
                "{}: {}",
                judgement.candidate,
                words(judgement.verdict)
            ));
            for finding in &judgement.findings {
                text += &comment(&format!("  {}", sentence(finding)));
            }
        }
        if !self.state.scores.is_empty() {
            let scores = self.state.scores.iter();
            let scores: Vec<String> = scores
                .map(|(name, score)| format!("{name} {score:+.3}"))
                .collect();
            text += &comment(&format!(
                "Scores of the sifting, above 0 better than the default, which prove nothing: {}.",
                scores.join(", ")
            ));
        }
        for (name, why) in &self.state.dropped {
            text += &comment(&format!("Not tried: {name}: {why}"));
        }
        text.push('\n');
        match self.chosen {
            None => text + "version = 1\n",
            Some(candidate) => {
                text + &comment(&format!("{}: {}", candidate.name, candidate.why))
                    + &candidate.policy
            }
        }
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "# Tuning for {}\n\n**{}**\n\n",
            self.setting(),
            self.verdict()
        );
        for line in self.explain() {
            text += &format!("- {line}\n");
        }
        text += &format!(
            "\n## The proof\n\n{}\n\n{}",
            TABLE_WORDS,
            self.table().to_markdown()
        );
        text += &format!(
            "\n![Speed against the neighbours' work]({})\n",
            self.picture()
        );
        text += &format!("\nAll figures: [{PROOF}/report.md]({PROOF}/report.md)\n");
        text += &format!("\n## What was tried\n\n{}", self.tried().to_markdown());
        text
    }

    fn picture(&self) -> String {
        format!(
            "{PROOF}/scatter-{}.svg",
            self.state.matrix.workloads[0].name
        )
    }

    fn html(&self) -> String {
        let title = escape(&format!("Tuning for {}", self.setting()));
        let lines = self.explain();
        let lines: String = lines
            .iter()
            .map(|line| format!("<li>{}</li>\n", escape(line)))
            .collect();
        let panel = scatter::panel(self.proof, &self.state.matrix.workloads[0].name);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} · gpuaware-bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p class=\"lead\">{}</p>\n<ul>\n{lines}</ul>\n<h2>The proof</h2>\n<p>{TABLE_WORDS}</p>\n{}\
             <div class=\"pair\"><div class=\"card\">{panel}</div></div>\n\
             <p><a href=\"{PROOF}/report.html\">All figures</a></p>\n<h2>What was tried</h2>\n{}</main>\n</body>\n</html>\n",
            escape(&self.verdict()),
            self.table().to_html(),
            self.tried().to_html()
        )
    }

    /// Every policy of the proof beside every neighbour.
    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("neighbour", Align::Left),
            ("policy", Align::Left),
            ("speed", Align::Right),
            ("p99", Align::Right),
            ("work", Align::Right),
            ("work, % of possible", Align::Right),
            ("Pareto", Align::Left),
            ("verdict", Align::Left),
        ]);
        let mut last = None;
        for row in &self.proof.summary.rows {
            let chosen = self
                .chosen
                .is_some_and(|candidate| candidate.name == row.arm);
            let starts = table.next_row(&mut last, row.neighbour, chosen);
            let judgement = self.judgements.iter().find(|j| j.candidate == row.arm);
            let over = |figure: Figure| {
                let all = judgement.map(|j| j.findings.as_slice()).unwrap_or_default();
                let of_row =
                    |one: &&Finding| one.figure == figure && one.neighbour == row.neighbour;
                times(all.iter().find(of_row).map(|one| one.ratio), true)
            };
            let verdict = match judgement {
                Some(judgement) => words(judgement.verdict),
                None if row.arm == DEFAULT => "the default",
                None => "the kernel's own",
            };
            table.rows.push(vec![
                if starts {
                    row.neighbour.name().to_owned()
                } else {
                    String::new()
                },
                row.arm.clone(),
                over(Figure::Speed),
                over(Figure::TokenP99),
                over(Figure::Work),
                percent(row.work_of_possible, 1, true),
                if self.is_pareto(row) { "yes" } else { "" }.to_owned(),
                verdict.to_owned(),
            ]);
        }
        table
    }

    /// Nobody is better in one of speed, p99 and work, and worse in none, by the middle of the intervals.
    fn is_pareto(&self, row: &Row) -> bool {
        let figures = |row: &Row| {
            [
                row.tokens_per_s.map(|one| one.value),
                row.token_p99_ms.map(|one| -one.value),
                row.work_of_possible.map(|one| one.value),
            ]
        };
        let own = figures(row);
        let others = self.proof.summary.rows.iter();
        let beside =
            others.filter(|other| other.neighbour == row.neighbour && other.arm != row.arm);
        row.neighbour != Neighbour::None
            && !beside.map(figures).any(|other| {
                let pairs = own
                    .iter()
                    .zip(other)
                    .filter_map(|(own, other)| Some((*own)?.total_cmp(&other?)));
                let pairs: Vec<std::cmp::Ordering> = pairs.collect();
                pairs.iter().all(|order| order.is_le()) && pairs.iter().any(|order| order.is_lt())
            })
    }

    fn score(&self, candidate: &str) -> String {
        let score = self.state.scores.get(candidate);
        score.map_or_else(|| "–".to_owned(), |score| format!("{score:+.3}"))
    }

    /// Every candidate, and how far it came.
    fn tried(&self) -> Table {
        let mut table = Table::new(&[
            ("policy", Align::Left),
            ("sets", Align::Left),
            ("why", Align::Left),
            ("score", Align::Right),
            ("came to", Align::Left),
        ]);
        let judged = |name: &str| self.judgements.iter().find(|j| j.candidate == name);
        for candidate in &self.state.candidates {
            let keys = candidate.keys().into_iter();
            let keys: Vec<String> = keys
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            let end =
                judged(&candidate.name).map_or("dropped in the sifting", |j| words(j.verdict));
            table.rows.push(vec![
                candidate.name.clone(),
                keys.join(", "),
                candidate.why.clone(),
                self.score(&candidate.name),
                end.to_owned(),
            ]);
        }
        for (name, why) in &self.state.dropped {
            table.rows.push(vec![
                name.clone(),
                String::new(),
                String::new(),
                String::new(),
                format!("not tried: {why}"),
            ]);
        }
        table
    }
}

const TABLE_WORDS: &str = "Speed, p99 and work are over the default's in the same rounds, with 95 % intervals. Pareto: nobody \
    is better in one of speed, p99 and work and worse in none, by the middle values.";

fn comment(text: &str) -> String {
    let indent = text.len() - text.trim_start().len();
    let later = format!("#   {}", " ".repeat(indent));
    format!(
        "# {}{}",
        " ".repeat(indent),
        wrap(text.trim_start(), COLUMNS - indent, &later)
    )
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better than the default",
        Verdict::Same => "as good as the default, as far as can be seen",
        Verdict::Worse => "worse than the default in something",
        Verdict::TooFewRounds => "too few rounds to judge",
        Verdict::Failed => "some of its cells failed",
        Verdict::Unanswered => "leaves more requests without an answer than the default",
    }
}

fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Speed => "speed",
        Figure::TokenP99 => "p99",
        Figure::TtftP99 => "TTFT p99",
        Figure::TpotP99 => "TPOT p99",
        Figure::Work => "neighbours' work",
        Figure::Idle => "idle time",
    }
}

fn sentence(finding: &Finding) -> String {
    let shown = match finding.shown {
        Shown::Better => "better".to_owned(),
        Shown::Worse => "worse".to_owned(),
        Shown::Nothing => difference(finding),
    };
    let beside = match finding.neighbour {
        Neighbour::None => "on the quiet machine".to_owned(),
        noisy => format!("beside {noisy}"),
    };
    format!(
        "{} {beside} {} of the default's: {shown}",
        name(finding.figure),
        times(Some(finding.ratio), true)
    )
}

fn difference(finding: &Finding) -> String {
    let margin = match finding.figure {
        Figure::Speed | Figure::Work => SPEED_MARGIN,
        _ => TAIL_MARGIN,
    };
    match finding.ratio.difference(margin) {
        Difference::More | Difference::Less => {
            "no difference shown among all comparisons".to_owned()
        }
        other => other.to_string(),
    }
}

fn nothing_shown(judgement: &Judgement) -> String {
    let speeds = judgement
        .findings
        .iter()
        .filter(|one| one.figure == Figure::Speed);
    let speeds: Vec<String> = speeds.map(sentence).collect();
    if speeds.is_empty() {
        "nothing was measured".to_owned()
    } else {
        speeds.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::samples::{SAME, Sample, report};
    use super::super::folder::samples::state;
    use super::*;

    fn outcome(candidate: &Sample, check: impl Fn(&Outcome)) {
        let finalists = [Candidate::new(
            "new",
            "it waits less",
            "[preferred]\nhold_us = 0\n",
        )];
        let (state, report) = (state(&finalists), report(6, candidate));
        check(&Outcome::new(&state, &finalists, &report));
    }

    #[test]
    fn a_policy_that_is_better_stands_below_its_evidence() {
        let faster = Sample {
            tokens_per_s: 98.0,
            ..SAME
        };
        outcome(&faster, |outcome| {
            let policy = outcome.policy();
            let table: toml::Table = toml::from_str(&policy).unwrap();
            assert_eq!(table["preferred"]["hold_us"].as_integer(), Some(0));
            for words in [
                "# new is better than the default on 6 held-out rounds.",
                "#   speed beside cpu 1.03 [",
                "# Not tried: late: no time",
                "new +0.031",
            ] {
                assert!(policy.contains(words), "{words}: {policy}");
            }
            let longest = policy.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(120), "{policy}");
        });
    }

    #[test]
    fn where_the_default_is_as_good_the_policy_sets_nothing_and_says_so() {
        let worse = Sample { work: 60.0, ..SAME };
        for candidate in [SAME, worse] {
            outcome(&candidate, |outcome| {
                let policy = outcome.policy();
                let table: toml::Table = toml::from_str(&policy).unwrap();
                assert_eq!(table.len(), 1, "{policy}");
                assert!(policy.contains("# The default is as good"), "{policy}");
            });
        }
    }

    #[test]
    fn reasons_fit_ten_lines_and_reports_have_the_table() {
        outcome(&SAME, |outcome| {
            let lines = outcome.explain();
            assert!((4..=EXPLAINED).contains(&lines.len()), "{lines:#?}");
            for text in [outcome.markdown(), outcome.html()] {
                assert!(text.contains("work, % of possible") && text.contains("hold_us = 0"));
                assert!(text.contains(words(Verdict::Same)), "{text}");
            }
        });
    }
}
