//! Contended ref updates: sixteen processes, and sixteen threads each with clients of its own, at one ref of an S3
//! bucket, fifty rounds: one wins each.

use super::buckets::fresh_s3;
use mdl_remote::place::Place;
use mdl_repo::storage::{Key, Storage, Swap};
use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    thread,
};

const ROUNDS: u32 = 50;
const KEY: Key = Key::fixed("refs/heads/main");

/// The round that a value ended; its first word.
fn round_of(value: &[u8]) -> u32 {
    let text = std::str::from_utf8(value).expect("text");
    text.split(' ').next().expect("a word").parse().expect("a number")
}

/// Moves the ref on until the rounds are over; returns the values that it was told it had set. An answer of unknown
/// outcome is not counted, and must not be needed here: the store loses none.
fn contend(storage: &dyn Storage, me: &str) -> Vec<String> {
    let mut won = Vec::new();
    loop {
        let old = storage.get(&KEY).expect("get").expect("there");
        let round = round_of(&old) + 1;
        if round > ROUNDS {
            return won;
        }
        let mine = format!("{round} {me}");
        match storage.swap(&KEY, Some(&old), Some(mine.as_bytes())).expect("swap") {
            Swap::Done => won.push(mine),
            Swap::Lost(found) => assert_ne!(found, Some(old), "lost to nobody"),
        }
    }
}

fn one_winner_a_round(won: &[String]) {
    let mut rounds: BTreeMap<u32, Vec<&String>> = BTreeMap::new();
    for value in won {
        rounds.entry(round_of(value.as_bytes())).or_default().push(value);
    }
    for round in 1..=ROUNDS {
        let winners = rounds.get(&round).map_or(0, Vec::len);
        assert_eq!(winners, 1, "round {round}: {:?}", rounds.get(&round));
    }
    assert_eq!(won.len() as u32, ROUNDS);
}

#[test]
fn sixteen_threads_with_clients_of_their_own() {
    let Some(place) = fresh_s3("threads") else { return };
    place.storage().expect("storage").put(&KEY, b"0 start").expect("put");
    let won: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| {
                let place = &place;
                scope.spawn(move || contend(&*place.storage().expect("storage"), &format!("thread {n}")))
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().expect("joined")).collect()
    });
    one_winner_a_round(&won);
}

#[test]
fn sixteen_processes() {
    let Some(place) = fresh_s3("processes") else { return };
    place.storage().expect("storage").put(&KEY, b"0 start").expect("put");
    let me = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..16)
        .map(|n| {
            Command::new(&me)
                .args(["--exact", "rounds::contender", "--ignored", "--nocapture"])
                .env("MDL_CONTENDER", format!("{n} {place}"))
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process")
        })
        .collect();
    let mut won = Vec::new();
    for child in children {
        let out = child.wait_with_output().expect("ended");
        assert!(out.status.success(), "a contender failed");
        let text = String::from_utf8(out.stdout).expect("text");
        won.extend(text.lines().filter_map(|l| l.strip_prefix("won ")).map(str::to_owned));
    }
    one_winner_a_round(&won);
}

#[test]
#[ignore = "one process of sixteen_processes"]
fn contender() {
    let Ok(told) = std::env::var("MDL_CONTENDER") else {
        return;
    };
    let (n, place) = told.split_once(' ').expect("a number and a place");
    let storage = Place::parse(place).expect("place").storage().expect("storage");
    for value in contend(&*storage, &format!("process {n}")) {
        // On a line of its own: the harness has begun one.
        println!("\nwon {value}");
    }
}
