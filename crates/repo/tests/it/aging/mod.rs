//! Exact while new: which versions keep their exact contents, what stands for the others, and that nothing else is lost.

mod bounds;
mod crashes;
mod faults;
mod long;
mod names;
mod resume;
pub mod run;
mod schedules;
mod undo;
mod unlocked;
mod window;
