//! What callers rely on: the same bits with any number of threads, limits, values that are no numbers.

mod limits;
mod methods;
mod support;
mod update;
