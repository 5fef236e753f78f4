//! Tasks beside requests: jobs, events, webhooks, and what they and requests share fairly.

pub mod events;
pub mod fair;
pub mod jobs;
pub(crate) mod keyed_mutex;
pub mod webhooks;
