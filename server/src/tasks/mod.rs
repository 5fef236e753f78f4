//! Tasks beside requests: jobs, events, webhooks, and what they and requests share fairly.

pub(crate) mod events;
pub mod fair;
pub(crate) mod jobs;
pub(crate) mod keyed_mutex;
pub mod webhooks;
