//! Exact while new: which versions keep their exact contents, and what stands for the others.

mod bounds;
mod crashes;
mod faults;
mod ladder;
mod ladder_faults;
mod long;
mod names;
mod resume;
pub mod run;
mod schedules;
mod undo;
mod unlocked;
mod window;
