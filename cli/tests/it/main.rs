//! The program, run as a user runs it: output, exit codes, messages.

mod bisect;
mod common;
mod compare;
mod doctor;
mod errors;
mod help;
mod history;
mod json;
mod merge;
mod notes;
mod output;
mod remotes;
mod replay;
mod unsafe_names;
mod workflow;
