// SPDX-License-Identifier: GPL-2.0-only
//! The names and forms that files have.

use super::*;

fn full() -> Record {
    Record {
        cpu: 1,
        tid: 12,
        tgid: 10,
        comm: Comm::new("a,\"b"),
        symbol: Some(Name::new("cuLaunchKernel")),
        grid_x: Some(1),
        grid_y: Some(2),
        grid_z: Some(3),
        block_x: Some(4),
        block_y: Some(5),
        block_z: Some(6),
        shared_bytes: Some(7),
        stream: Some(8),
        duration_ns: Some(9),
        self_ns: Some(10),
        wait_ns: Some(11),
        reason: Some(Reason::Preempted),
        state: Some('R'),
        other_tid: Some(13),
        other_tgid: Some(14),
        other_comm: Some(Comm::new("hog")),
        to_cpu: Some(15),
        irq: Some(16),
        irq_name: Some(Name::new("eth0")),
        sched_class: Some(Name::new("ext")),
        dsq: Some(17),
        slice_ns: Some(18),
        ..Record::new(u64::MAX, Kind::SwitchOut)
    }
}

#[test]
fn columns_are_the_fields_in_order() {
    let text = serde_json::to_string(&full()).unwrap();
    let position = |column: &str| text.find(&format!("\"{column}\":")).unwrap();
    assert!(
        COLUMNS
            .windows(2)
            .all(|two| position(two[0]) < position(two[1]))
    );
    let object: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(object.len(), COLUMNS.len());
}

#[test]
fn names_are_those_of_serde() {
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
        assert_eq!(Kind::ALL[kind as usize], kind);
    }
    for reason in Reason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        assert_eq!(Reason::from_name(reason.name()), Some(reason));
    }
}

#[test]
fn lines_of_all_three_sorts_survive_a_round_trip() {
    let header = Header {
        schema: VERSION,
        program: "0.1.0".to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start_ns: 100,
        start_unix_ns: 7,
        kernel: "6.18.0".to_owned(),
        scheduler: None,
        cpus: 2,
        target: "command true".to_owned(),
        launches: Launches::Sampled {
            window_ns: 20,
            period_ns: 2000,
        },
    };
    let end = End {
        ended_by: EndedBy::Signal,
        end_ns: 300,
        window_ns: 50,
        windows: 1,
        counted: BTreeMap::from([(Kind::Launch, 5)]),
        lost: BTreeMap::from([(Kind::Launch, 2)]),
        missed: 1,
        missed_by: BTreeMap::from([("too_deep".to_owned(), 1)]),
    };
    assert!((end.sampled_fraction(&header) - 0.25).abs() < 1e-12);
    assert_eq!(end.nr_lost(), 3);
    for line in [
        Line::Header(header),
        Line::End(end),
        Line::Record(Box::new(full())),
        Line::Record(Box::new(Record::new(1, Kind::WindowOpen))),
    ] {
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
    }
}

#[test]
fn names_are_cut_at_a_character() {
    assert_eq!(Name::<4>::new("abcé").as_str(), "abc");
}
