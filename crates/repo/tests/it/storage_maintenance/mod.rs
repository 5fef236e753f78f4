//! Storage and maintenance: one file per subject.

mod compact;
mod conformance;
mod crafted;
mod cramped;
mod crash;
mod fsck;
mod gc;
mod handles;
mod hostile;
mod lattices;
mod parts;
mod phases;
mod phases_crash;
mod phases_schedules;
mod phases_storm;
mod prune;
mod setup;
mod stats;
mod storm;
mod unlocked;
